//go:build unix

package home

import (
	"os"
	"syscall"

	"brood/internal/base/errs"
)

// owned refuses a folder that belongs to somebody else.
func owned(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return errs.New(errs.Unsupported, "home folder: %s is not a folder: set BROOD_HOME to one", dir)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return errs.New(errs.PermissionDenied,
			"%s belongs to user %d and you are user %d: set BROOD_HOME to a folder of your own", dir, sys.Uid, os.Geteuid())
	}
	return nil
}

// secure takes the access of others to a home away.
func secure(dir string) error {
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm()&0o077 == 0 {
		return err
	}
	return os.Chmod(dir, 0o700)
}
