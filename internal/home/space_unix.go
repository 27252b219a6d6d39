//go:build unix

package home

import "golang.org/x/sys/unix"

// space returns what an ordinary user can still write to dir's filesystem,
// and its size.
func space(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}
