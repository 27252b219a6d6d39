package checkpoint

import "golang.org/x/sys/unix"

// renameNew renames and fails when there is something under the new name.
func renameNew(from, to string) error { return unix.RenamexNp(from, to, unix.RENAME_EXCL) }

// swap gives two paths each other's content, at one instant.
func swap(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
