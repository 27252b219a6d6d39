package stamp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Granule is longer than a tick of any file system's clock that keeps fractions
// of a second: the kernel advances it every 1 to 10 ms.
const Granule = 20 * time.Millisecond

// Stat is what tells that a file was not touched.
type Stat struct {
	Size         int64
	MTime, CTime int64 // nanoseconds since 1970
	Ino          uint64
	Mode         uint32 // type and permissions, as in stat(2)
}

// Of returns the Stat of what path names, without following a link.
func Of(path string) (Stat, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Stat{}, err
		}
		break
	}
	return fromUnix(&st), nil
}

// Settled says that the file had been at rest when the clock showed now, so
// that a later change shows in its times.
func (s Stat) Settled(now time.Time) bool {
	margin := int64(Granule)
	if s.MTime%1e9 == 0 && s.CTime%1e9 == 0 {
		margin = 2e9 // a file system that keeps whole seconds, or two
	}
	return max(s.MTime, s.CTime)+margin < now.UnixNano()
}

// Regular says that it is a file; Link that it is a symbolic link; Dir a folder.
func (s Stat) Regular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// Link says that it is a symbolic link.
func (s Stat) Link() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// Dir says that it is a folder.
func (s Stat) Dir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// Perm returns the permissions.
func (s Stat) Perm() uint32 { return s.Mode & 0o777 }

func fromUnix(st *unix.Stat_t) Stat {
	return Stat{
		Size:  st.Size,
		MTime: nano(st.Mtim),
		CTime: nano(st.Ctim),
		Ino:   uint64(st.Ino),  //nolint:unconvert // its type differs between systems
		Mode:  uint32(st.Mode), //nolint:unconvert // its type differs between systems
	}
}

func nano(t unix.Timespec) int64 { return int64(t.Sec)*1e9 + int64(t.Nsec) } //nolint:unconvert // 32 bits on some systems
