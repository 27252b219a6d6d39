package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
)

// mountedRoot is what a container's description says of its root.
type mountedRoot struct {
	path        string
	annotations map[string]string
}

// roots prepares root filesystems and counts their users.
type roots struct {
	mu     sync.Mutex
	images map[string]*image    // by base name
	folds  map[string]*skeleton // by folder
}

type image struct {
	// file is what the link of that name leads to; nil when an earlier
	// launcher had it.
	file  *os.File
	users map[string]bool // container ids
}

type skeleton struct {
	binds []launch.Bind // nil when an earlier launcher mounted them
	users map[string]bool
}

func newRoots() *roots {
	return &roots{images: map[string]*image{}, folds: map[string]*skeleton{}}
}

const (
	imagesName = "images"
	emptyName  = "empty"
)

// use prepares the root for container id; release undoes it.
func (r *roots) use(id string, root launch.Root, file *os.File) (mountedRoot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if root.EROFS != "" {
		return r.useImage(id, root.EROFS, file)
	}
	return r.useSkeleton(id, root.Host)
}

// useImage gives the image a path that does not depend on where it is: a
// checkpoint holds the path and restores on no other. The path is a link to a
// descriptor that stays open while the image is in use.
func (r *roots) useImage(id, source string, file *os.File) (mountedRoot, error) {
	info, err := file.Stat()
	if err != nil {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "image %s is no regular file", source)
	}
	base := filepath.Base(source)
	link := filepath.Join(stateRoot, imagesName, base)
	img := r.images[base]
	if img == nil {
		img = &image{users: map[string]bool{}}
	}
	if img.file == nil {
		if img.file, err = duplicate(file); err != nil {
			return mountedRoot{}, err
		}
		if err := replaceLink(throughFD(img.file), link); err != nil {
			_ = img.file.Close()
			return mountedRoot{}, err
		}
	} else if have, err := img.file.Stat(); err != nil || !os.SameFile(info, have) {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "image %s: another file of that name is in use; images need names of their own, like their digests", source)
	}
	r.images[base] = img
	img.users[id] = true
	return mountedRoot{
		path: filepath.Join(stateRoot, emptyName),
		annotations: map[string]string{
			boot.RootfsPrefix + "source":  link,
			boot.RootfsPrefix + "type":    "erofs",
			boot.RootfsPrefix + "overlay": "memory",
		},
	}, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep image open: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func replaceLink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

// useSkeleton mounts the binds that are not mounted yet.
func (r *roots) useSkeleton(id string, host *launch.HostRoot) (mountedRoot, error) {
	s := r.folds[host.Dir]
	if s == nil {
		s = &skeleton{users: map[string]bool{}}
	}
	if s.binds == nil {
		if err := mountBinds(host); err != nil {
			if len(s.users) == 0 {
				unmountBelow(host.Dir)
			}
			return mountedRoot{}, err
		}
		s.binds = slices.Clone(host.Binds)
		if s.binds == nil {
			s.binds = []launch.Bind{}
		}
	} else if !slices.Equal(s.binds, host.Binds) {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "root folder %s is in use with other binds", host.Dir)
	}
	s.users[id] = true
	r.folds[host.Dir] = s
	return mountedRoot{path: host.Dir}, nil
}

// adopt counts a loaded container as a user of its root.
func (r *roots) adopt(id, path, imageLink string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if imageLink != "" {
		base := filepath.Base(imageLink)
		img := r.images[base]
		if img == nil {
			img = &image{users: map[string]bool{}}
			r.images[base] = img
		}
		img.users[id] = true
		return
	}
	s := r.folds[path]
	if s == nil {
		s = &skeleton{users: map[string]bool{}}
		r.folds[path] = s
	}
	s.users[id] = true
}

// release forgets container id; what nobody uses is unmounted.
func (r *roots) release(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for base, img := range r.images {
		if delete(img.users, id); len(img.users) == 0 {
			_ = img.file.Close()
			_ = os.Remove(filepath.Join(stateRoot, imagesName, base))
			delete(r.images, base)
		}
	}
	for dir, s := range r.folds {
		if delete(s.users, id); len(s.users) == 0 {
			unmountBelow(dir)
			delete(r.folds, dir)
		}
	}
}

// mountBinds mounts each bind that is not there yet. The targets are looked up
// inside the folder, so that no link in it leads outside.
func mountBinds(host *launch.HostRoot) error {
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
	fd, err := unix.Openat2(dir, "."+b.Target, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("look up the mount point: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	through := fmt.Sprintf("/proc/self/fd/%d", fd)
	target, err := os.Readlink(through)
	if err != nil {
		return err
	}
	there, err := mountsAt(target)
	if err != nil {
		return err
	}
	if len(there) == 0 || there[0].point != target {
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

// unmountBelow detaches every mount inside dir, the deepest first. Sandboxes
// that still end have their own copies.
func unmountBelow(dir string) {
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
