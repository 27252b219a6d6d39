package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cgroupPrefix begins the names of the cgroups that workers make; the number of
// the process follows.
const cgroupPrefix = "brood-"

// ownCgroup finds the folder of this process's cgroup in the hierarchy that
// has the controller ("" is version 2), as this process sees it.
func ownCgroup(controller string) string {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	path, ok := cgroupPath(string(self), controller)
	if !ok {
		return ""
	}
	point, root := cgroupMount(string(mounts), controller)
	if point == "" {
		return ""
	}
	// In a container without a cgroup namespace the path is the host's, and the
	// mount shows the container's part of it.
	rel, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = "."
	}
	dir := filepath.Join(point, rel)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return ""
	}
	return dir
}

// cgroupPath reads /proc/self/cgroup: lines of number, controllers and path.
func cgroupPath(self, controller string) (string, bool) {
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if controller == "" && f[0] == "0" && f[1] == "" ||
			controller != "" && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// cgroupMount reads /proc/self/mountinfo: where the hierarchy is mounted, and
// which part of it.
func cgroupMount(mounts, controller string) (point, root string) {
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		if controller == "" && g[0] == "cgroup2" ||
			controller != "" && g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), controller) {
			return f[4], f[3]
		}
	}
	return "", ""
}

// sweepCgroups removes the cgroups of workers that were killed. One that is
// still in use cannot be removed, so nothing needs to be asked but whether its
// maker lives.
func sweepCgroups(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), cgroupPrefix)
		number, _, ok := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if !ours || !ok || err != nil || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		// It fails while a task that the dead worker left is in it.
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}

// membersOf reads a cgroup.procs file.
func membersOf(file string) []int {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range bytes.Fields(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// counters reads a file of names and numbers, such as memory.stat.
func counters(b []byte) map[string]int64 {
	m := map[string]int64{}
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if n, err := strconv.ParseInt(string(value), 10, 64); ok && err == nil {
			m[string(name)] = n
		}
	}
	return m
}

// readNumber reads a file that holds one number.
func readNumber(f *os.File) int64 {
	b := readStart(f, make([]byte, 32))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readStart reads a file of the kernel's from its beginning, into buf.
func readStart(f *os.File, buf []byte) []byte {
	n, err := f.ReadAt(buf, 0)
	if n == 0 && err != nil {
		return nil
	}
	return buf[:n]
}

// evict moves processes to another cgroup.
func evict(pids []int, procs string) {
	for _, pid := range pids {
		// One that ended meanwhile needs no place.
		_ = os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0)
	}
}
