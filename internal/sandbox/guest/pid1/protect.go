//go:build linux

package pid1

import (
	"context"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// protect makes places of the sandbox read-only, and places inside them
// writable again, in the order given. It is kept in captures.
func (s *Server) protect(ctx context.Context, a proto.ProtectArgs) error {
	if err := s.gate.enter(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	for _, p := range a.Places {
		if !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || p.Path == "/" {
			return errs.New(errs.InvalidArgument, "place %.200q must be an absolute path, and not the root", p.Path)
		}
		if err := s.cfg.OS.Protect(p.Path, p.ReadOnly); err != nil {
			return errs.New(errs.FailedPrecondition, "set whether %s can be written: %w", p.Path, err)
		}
	}
	return nil
}

// Protect mounts a place on itself, so that it can have a flag of its own.
func (System) Protect(place string, readOnly bool) error {
	if err := unix.Mount(place, place, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", place, "", flags, ""); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	return nil
}
