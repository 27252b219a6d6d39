package checkpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// renameNew renames and fails when there is something under the new name.
func renameNew(from, to string) error {
	return again(func() error { return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE) })
}

// swap gives two paths each other's content, at one instant.
func swap(a, b string) error {
	return again(func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) })
}

func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
