package image

import (
	"io/fs"
	"syscall"
	"time"
)

// fileID tells files of this machine apart.
type fileID struct{ dev, ino uint64 }

// stat is what fs.FileInfo does not say.
type stat struct {
	id    fileID
	links uint64
	mode  uint16 // the low twelve bits
	ctime time.Time
}

func statOf(fi fs.FileInfo) stat {
	s := fi.Sys().(*syscall.Stat_t)
	return stat{
		id: fileID{dev: uint64(s.Dev), ino: s.Ino}, links: uint64(s.Nlink), //nolint:unconvert // their sizes differ by architecture
		mode: uint16(s.Mode & 0o7777), ctime: time.Unix(s.Ctim.Unix()),
	}
}
