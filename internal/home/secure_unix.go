//go:build unix

package home

import (
	"os"
	"syscall"

	"brood/internal/base/errs"
)

// secure refuses a home that others own and takes their access away.
func secure(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return errs.New(errs.PermissionDenied,
			"%s belongs to user %d and you are user %d: set BROOD_HOME to a folder of your own", dir, sys.Uid, os.Geteuid())
	}
	if st.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}
