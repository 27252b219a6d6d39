//go:build linux

package worker

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/base/life"
)

func TestFindsOwnCgroup(t *testing.T) {
	self := "12:cpu,cpuacct:/user/x\n4:memory:/docker/abc/sub\n0::/user.slice/s:cope\n"
	mounts := strings.Join([]string{
		"30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
		"31 24 0:27 /docker/abc /sys/fs/cgroup/memory rw,nosuid master:1 - cgroup cgroup rw,memory",
		"32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
		"nonsense", "",
	}, "\n")
	for controller, want := range map[string][3]string{
		"memory":  {"/docker/abc/sub", "/sys/fs/cgroup/memory", "/docker/abc"},
		"cpuacct": {"/user/x", "/sys/fs/cgroup/cpu,cpuacct", "/"},
		"":        {"/user.slice/s:cope", "/sys/fs/cgroup/unified", "/"},
		"pids":    {},
	} {
		path, ok := cgroupPath(self, controller)
		point, root := cgroupMount(mounts, controller)
		if path != want[0] || ok != (want[0] != "") || point != want[1] || root != want[2] {
			t.Errorf("%q: %q %v, %q of %q", controller, path, ok, root, point)
		}
	}
}

func TestProcFiles(t *testing.T) {
	stat := []byte("42 (a (b) c) S 1 40 40 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 100 1 1\n")
	if g, runs := groupOfStat(stat); g != 40 || !runs {
		t.Errorf("group %d, %v", g, runs)
	}
	if _, runs := groupOfStat([]byte("42 (x) Z 1 40 40")); runs {
		t.Error("a process that ended runs")
	}
	if got := cpuOfStat(stat); got != 2*time.Second {
		t.Errorf("CPU %v", got)
	}
	own, shared := memOfStatm([]byte("1000 300 100 1 0 200 0\n"))
	if own != 200*pageSize || shared != 100*pageSize {
		t.Errorf("memory %d %d", own, shared)
	}
	for _, bad := range []string{"", "x", "1 2", "1 (x", "1 2 3"} {
		groupOfStat([]byte(bad))
		if cpuOfStat([]byte(bad)) != 0 {
			t.Errorf("%q has CPU time", bad)
		}
		memOfStatm([]byte(bad))
	}
}

// TestEveryBackendCounts: whatever ways to count this machine has.
func TestEveryBackendCounts(t *testing.T) {
	g := life.NewGroup(t.Context())
	all := map[string]backend{"procs": procs{}}
	if b := newCgroup1(g); b != nil {
		all["cgroup v1"] = b
	}
	if b := newCgroup2(); b != nil {
		all["cgroup v2"] = b
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, b := range all {
		t.Run(name, func(t *testing.T) {
			s := b.site()
			p, err := s.start(command{
				path: "/bin/sh", argv: []string{"sh", "-c", "(i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done); read x < /proc/self/stat; sleep 0.3"}, dir: "/", env: nil, files: []*os.File{null, null, null},
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				s.sample()
			}
			inside := s.members()
			ended, err := endingOf(p)
			if err != nil {
				t.Fatal(err)
			}
			var used rusage
			used.add(ended)
			u := s.usage(used)
			if u.CPU <= 0 || u.CPU > time.Minute || u.CPU < used.cpu/2 || u.PeakMemory <= 0 || u.PeakMemory > 1<<30 {
				t.Errorf("%+v, by the system's account %v", u, used.cpu)
			}
			if name != "procs" && len(inside) == 0 {
				t.Error("nobody was in it")
			}
			if left := s.members(); len(left) != 0 {
				t.Errorf("%v are in it", left)
			}
			s.release()
		})
		b.close(true)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for _, controller := range []string{"memory", "cpuacct", ""} {
		dir := ownCgroup(controller)
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), cgroupPrefix+strconv.Itoa(os.Getpid())+"-") {
				t.Errorf("%s/%s is left", dir, e.Name())
			}
		}
	}
}
