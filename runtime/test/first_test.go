package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A sandbox that the runtime's own first start made has the rights and the
// surroundings that gVisor's gives one: debug logs are what lets gVisor do it.
func TestFirstStartIsGVisors(t *testing.T) {
	w := newWorld(t)
	ours, theirs := w.container("ours", w.image()), w.container("theirs", w.image())
	theirs.DebugDir = t.TempDir()
	of := map[string]map[string]string{}
	for _, c := range []struct {
		id  string
		run func()
	}{
		{"ours", func() { w.run(ours) }},
		{"theirs", func() { w.run(theirs) }},
	} {
		c.run()
		of[c.id] = surroundings(t, w.entry(c.id).PID)
	}
	// gVisor leaves the time of the start in the environment of the second.
	if o, th := of["ours"]["environment"], of["theirs"]["environment"]; o != "" || !strings.Contains(th, "START_TIME") {
		t.Fatalf("the two were started in one way: environments %q and %q", o, th)
	}
	for what, theirs := range of["theirs"] {
		if ours := of["ours"][what]; ours != theirs && what != "environment" {
			t.Errorf("%s is\n%s\nand where gVisor made it\n%s", what, ours, theirs)
		}
	}
}

// surroundings is what a process can do and see.
func surroundings(t *testing.T, pid int) map[string]string {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", pid)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(proc, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	out := map[string]string{"environment": read("environ")}
	rights := regexp.MustCompile(`(?m)^(Uid|Gid|Groups|Umask|Cap\w+|NoNewPrivs|Seccomp\w*|SigIgn):.*$`)
	found := rights.FindAllString(read("status"), -1)
	if len(found) < 10 {
		t.Fatalf("the status of %d has only %q", pid, found)
	}
	out["rights"] = strings.Join(found, "\n")
	// Without the numbers that each mount has for itself.
	out["mounts"] = regexp.MustCompile(`(?m)^\d+ \d+ \d+:\d+ `).ReplaceAllString(read("mountinfo"), "")
	var files []string
	root := filepath.Join(proc, "root")
	err := filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size := info.Size()
		if d.IsDir() {
			size = 0
		}
		files = append(files, fmt.Sprintf("%s %s %d", info.Mode(), strings.TrimPrefix(path, root), size))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out["files"] = strings.Join(files, "\n")
	own, others := []string{}, []string{}
	for _, ns := range []string{"ipc", "mnt", "net", "pid", "user", "uts"} {
		theirs, err := os.Readlink(filepath.Join(proc, "ns", ns))
		if err != nil {
			t.Fatal(err)
		}
		if ours, err := os.Readlink("/proc/self/ns/" + ns); err != nil || ours == theirs {
			others = append(others, ns)
		} else {
			own = append(own, ns)
		}
	}
	out["namespaces"] = fmt.Sprint("own ", own, " the caller's ", others)
	limits := strings.Split(read("limits"), "\n")
	slices.Sort(limits)
	out["limits"] = strings.Join(limits, "\n")
	return out
}
