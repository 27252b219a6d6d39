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

// Bind mounts each bind that is not there yet. The targets are looked up
// inside the folder, so that no link in it leads outside.
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
