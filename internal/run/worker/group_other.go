//go:build !linux

package worker

import "syscall"

// groupLives says whether a process group has members.
func groupLives(g int) bool { return syscall.Kill(-g, 0) == nil }
