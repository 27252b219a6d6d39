// Package mounts puts together root folders of parts of this machine, in the
// mount namespace of the process that calls it.
//
// It reads what is mounted from the kernel and keeps nothing in memory, so that
// a process can go on where another died. It must be called from a namespace
// that is separated from the machine's (the holder's); callers serialize calls
// for the same folder.
package mounts

import (
	"fmt"
	"os"
	"slices"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
)

// Bound reports whether every bind shows what its source is now, and not what
// lay there when it was mounted. It costs a few calls of the kernel each.
func Bound(host *launch.HostRoot) bool {
	dir, err := unix.Open(host.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	return !slices.ContainsFunc(host.Binds, func(b launch.Bind) bool {
		fd, err := lookUp(dir, b.Target)
		if err != nil {
			return true
		}
		defer func() { _ = unix.Close(fd) }()
		return !shows(fd, b.Source)
	})
}

// lookUp opens what a sandbox would see at a target: the uppermost mount.
func lookUp(dir int, target string) (int, error) {
	return unix.Openat2(dir, "."+target, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// shows reports whether an open file or folder is the one at a path.
func shows(fd int, source string) bool {
	var have, want unix.Stat_t
	return unix.Fstat(fd, &have) == nil && unix.Stat(source, &want) == nil && have.Dev == want.Dev && have.Ino == want.Ino
}

// Bind mounts each bind that is not there yet, and anew each whose source was
// replaced. The targets are looked up inside the folder, so that no link in it
// leads outside.
func Bind(host *launch.HostRoot) error {
	dir, err := unix.Open(host.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "root folder %s: %w", host.Dir, err)
	}
	defer func() { _ = unix.Close(dir) }()
	for _, b := range host.Binds {
		if err := mountBind(dir, b); err != nil {
			return errs.New(errs.FailedPrecondition, "bind %s at %s: %w", b.Source, b.Target, err)
		}
	}
	return nil
}

func mountBind(dir int, b launch.Bind) error {
	fd, shown, err := uncovered(dir, b)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	through := throughFD(fd)
	target, err := os.Readlink(through)
	if err != nil {
		return err
	}
	there, err := mountsAt(target)
	if err != nil {
		return err
	}
	// What shows the source may be a part of another bind, with other rights.
	if !shown || len(there) == 0 || there[0].point != target {
		if err := unix.Mount(b.Source, through, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		// The descriptor still means what is under the mount.
		if there, err = mountsAt(target); err != nil {
			return err
		}
	}
	for _, m := range there {
		if err := unix.Mount("", m.point, "", unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("separate %s: %w", m.point, err)
		}
		flags := m.flags | unix.MS_NOSUID | unix.MS_NODEV
		if b.ReadOnly {
			flags |= unix.MS_RDONLY
		}
		if flags == m.flags {
			continue
		}
		if err := unix.Mount("", m.point, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			return fmt.Errorf("protect %s: %w", m.point, err)
		}
	}
	return nil
}

// uncovered opens a target after it has detached what is mounted there and is
// not the source, and says whether it shows the source. What is below such a
// mount goes with it and is mounted again by the binds that come later.
func uncovered(dir int, b launch.Bind) (fd int, shown bool, err error) {
	for detached := true; detached; {
		if fd, err = lookUp(dir, b.Target); err != nil {
			return -1, false, fmt.Errorf("look up the mount point: %w", err)
		}
		if shown = shows(fd, b.Source); shown {
			break
		}
		// It fails where nothing is mounted, and what is not ours: that will be
		// covered.
		if detached = unix.Unmount(throughFD(fd), unix.MNT_DETACH) == nil; detached {
			_ = unix.Close(fd)
		}
	}
	return fd, shown, nil
}

func throughFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// DetachBelow detaches every mount inside dir, the deepest first. Sandboxes
// that still end have their own copies.
func DetachBelow(dir string) {
	list, err := mountsAt(dir)
	if err != nil {
		return
	}
	slices.Reverse(list)
	for _, m := range list {
		if m.point != dir {
			_ = unix.Unmount(m.point, unix.MNT_DETACH)
		}
	}
}
