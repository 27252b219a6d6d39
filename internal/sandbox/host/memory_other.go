//go:build !linux

package host

func memory() (total, free uint64) { return 0, 0 }
