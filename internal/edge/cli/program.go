package cli

import (
	"os"
	"path/filepath"
)

// Program is the path of the program that the user called. One that was handed
// the command by another has the other's path as its name.
func Program() (string, error) {
	if filepath.IsAbs(os.Args[0]) {
		return os.Args[0], nil
	}
	return os.Executable()
}

// BesideMe is a program in this program's own folder.
func BesideMe(name string) string {
	exe, err := Program()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(exe), name)
}
