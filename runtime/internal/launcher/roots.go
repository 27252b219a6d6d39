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
	images map[string]*image    // by imageName
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
// descriptor that stays open while the image is in use. Whose file was moved
// away or removed and made again is given the new one; sandboxes that run have
// the old one open themselves.
func (r *roots) useImage(id, source string, file *os.File) (mountedRoot, error) {
	info, err := file.Stat()
	if err != nil {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "image %s is no regular file", source)
	}
	name := imageName(source)
	link := filepath.Join(stateRoot, imagesName, name)
	img := r.images[name]
	if img == nil {
		img = &image{users: map[string]bool{}}
	}
	same := false
	if img.file != nil {
		have, err := img.file.Stat()
		if err != nil || have.Size() != info.Size() {
			return mountedRoot{}, errs.New(errs.FailedPrecondition, "image %s: another file of that name is in use; images need names of their own, like their digests", source)
		}
		same = os.SameFile(info, have)
	}
	if !same {
		if err := img.lead(link, file); err != nil {
			return mountedRoot{}, err
		}
	}
	r.images[name] = img
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

// imageName is what an image is called in a checkpoint. Its folder is part of
// it: images are told apart by that.
func imageName(source string) string {
	return filepath.Base(filepath.Dir(source)) + "-" + filepath.Base(source)
}

// lead makes the link lead to a file, which it keeps open instead of the one
// it had.
func (i *image) lead(link string, file *os.File) error {
	kept, err := duplicate(file)
	if err != nil {
		return err
	}
	if err := replaceLink(throughFD(kept), link); err != nil {
		_ = kept.Close()
		return err
	}
	if i.file != nil {
		_ = i.file.Close()
	}
	i.file = kept
	return nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep image open: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// replaceLink has no moment without a link: others look through it.
func replaceLink(target, link string) error {
	beside := link + ".new"
	if err := os.Remove(beside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, beside); err != nil {
		return err
	}
	return os.Rename(beside, link)
}

// useSkeleton mounts the binds that are not mounted yet, and anew those whose
// folder is another by now, as when it was moved away and made again. Sandboxes
// that run have mounts of their own, which stay.
func (r *roots) useSkeleton(id string, host *launch.HostRoot) (mountedRoot, error) {
	s := r.folds[host.Dir]
	if s == nil {
		s = &skeleton{users: map[string]bool{}}
	}
	if s.binds != nil && !slices.Equal(s.binds, host.Binds) {
		return mountedRoot{}, errs.New(errs.FailedPrecondition, "root folder %s is in use with other binds", host.Dir)
	}
	if s.binds == nil || !mounts.Bound(host) {
		if err := mounts.Bind(host); err != nil {
			if len(s.users) == 0 {
				mounts.DetachBelow(host.Dir)
			}
			return mountedRoot{}, err
		}
		s.binds = append([]launch.Bind{}, host.Binds...) // not nil
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
