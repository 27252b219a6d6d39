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
	"brood/runtime/internal/mounts"

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
		if err := mounts.Bind(host); err != nil {
			if len(s.users) == 0 {
				mounts.DetachBelow(host.Dir)
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
			mounts.DetachBelow(dir)
			delete(r.folds, dir)
		}
	}
}
