package worker

import "brood/internal/base/life"

// newBackend takes the best way to count that this process may use: cgroup v1
// where memory and CPU time are counted there, v2, else sampling of /proc.
func newBackend(group *life.Group, cgroups bool) backend {
	if cgroups {
		if b := newCgroup1(group); b != nil {
			return b
		}
		if b := newCgroup2(); b != nil {
			return b
		}
	}
	return procs{}
}
