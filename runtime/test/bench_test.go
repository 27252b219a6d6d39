package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/sandbox/driver/gvisor/launch"
)

// TestSpeedAndMemory alternates forks by the launcher with restores by gVisor's
// own command of the same module version, on the same root filesystem, and logs
// medians and ratios. It asserts the ratios that hold on a busy machine too: a
// fork does not take more CPU, nor an idle fork more memory, than bare.
//
// It runs when BROOD_TEST_STOCK names the stock runsc that the build tool
// writes with --stock, as root.
func TestSpeedAndMemory(t *testing.T) {
	runsc := os.Getenv("BROOD_TEST_STOCK")
	if runsc == "" || os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs BROOD_TEST_STOCK, and root")
	}
	rounds := 5
	if n, err := strconv.Atoi(os.Getenv("BROOD_TEST_ROUNDS")); err == nil {
		rounds = n
	}
	w := newWorld(t)
	root := w.image()
	floor := newStock(w, runsc, root)
	var times samples
	times.measure("start", func() { w.run(w.container("src", root)) })
	image := w.checkpoint("src")

	var ours, bare []int
	var ourCPU, bareCPU time.Duration
	for i := range rounds {
		id := fmt.Sprintf("fork-%d", i)
		times.measure("bare restore", func() { floor.restore(id) })
		pid := floor.pid(id)
		bareCPU += cpu(familyOf(pid)...)
		bare = append(bare, pss(pid))
		before := cpu(w.info.LauncherPID)
		times.measure("create", func() { w.create(w.container(id, root)) })
		times.measure("restore", func() {
			if err := w.client.Restore(w.ctx, launch.Restore{ID: id, ImageDir: image}); err != nil {
				t.Fatal(err)
			}
		})
		pid = w.entry(id).PID
		ourCPU += cpu(familyOf(pid)...) + cpu(w.info.LauncherPID) - before
		newGuest(t, w.channel(id)).count()
		ours = append(ours, pss(pid))
	}
	for i := range rounds {
		id := fmt.Sprintf("fork-%d", i)
		times.measure("checkpoint", func() { w.checkpoint(id) })
		times.measure("destroy", func() { w.destroy(id) })
		floor.delete(id)
	}
	fork := times.median("create") + times.median("restore")
	for _, name := range times.names {
		t.Logf("%-12s median %v of %d", name, times.median(name).Round(100*time.Microsecond), len(times.of[name]))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	speed := float64(fork) / float64(times.median("bare restore"))
	memory := float64(ours[rounds/2]) / float64(bare[rounds/2])
	t.Logf("fork %v, bare %v: ratio %.2f", fork, times.median("bare restore"), speed)
	bareCPU += floor.cpu
	work := float64(ourCPU) / float64(bareCPU)
	t.Logf("CPU of a fork %v, of a bare restore %v: ratio %.2f", ourCPU/time.Duration(rounds), bareCPU/time.Duration(rounds), work)
	t.Logf("PSS right after the fork: %d KiB, bare %d KiB: ratio %.2f", ours[rounds/2], bare[rounds/2], memory)
	if work > 1 {
		t.Errorf("a fork takes %.2f of a bare restore's work", work)
	}
	if memory > 1.05 {
		t.Errorf("an idle fork takes %.2f of a bare one's memory", memory)
	}
}

type samples struct {
	names []string
	of    map[string][]time.Duration
}

func (s *samples) measure(name string, f func()) {
	if s.of == nil {
		s.of = map[string][]time.Duration{}
	}
	if s.of[name] == nil {
		s.names = append(s.names, name)
	}
	begin := time.Now()
	f()
	s.of[name] = append(s.of[name], time.Since(begin))
}

func (s *samples) median(name string) time.Duration {
	sorted := slices.Sorted(slices.Values(s.of[name]))
	return sorted[len(sorted)/2]
}

// stock is gVisor's own command with a source and its checkpoint.
type stock struct {
	t                           *testing.T
	runsc, root, bundle, images string
	cpu                         time.Duration // of restore commands
}

func newStock(w *world, runsc string, root launch.Root) *stock {
	base := filepath.Join(filepath.Dir(w.dir), "stock")
	s := &stock{t: w.t, runsc: runsc, root: filepath.Join(base, "state"), bundle: filepath.Join(base, "bundle"), images: filepath.Join(base, "image")}
	for _, d := range []string{s.root, filepath.Join(s.bundle, "empty"), s.images} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	spec := map[string]any{
		"ociVersion": "1.1.0",
		"root":       map[string]any{"path": "empty"},
		"process":    map[string]any{"args": []string{"/opt/guest"}, "cwd": "/", "env": []string{"GOMAXPROCS=2"}, "user": map[string]any{"uid": 0, "gid": 0}},
		"annotations": map[string]string{
			"dev.gvisor.spec.rootfs.source": root.EROFS, "dev.gvisor.spec.rootfs.type": "erofs", "dev.gvisor.spec.rootfs.overlay": "memory",
		},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	}
	b, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.bundle, "config.json"), b, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	s.do("run", "--detach", "--bundle", s.bundle, "bare")
	w.t.Cleanup(func() { s.delete("bare") })
	s.do("checkpoint", "--leave-running", "--image-path", s.images, "--compression", "none", "bare")
	s.cpu = 0
	return s
}

func (s *stock) do(args ...string) string {
	s.t.Helper()
	flags := []string{"--root", s.root, "--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=root:memory", "--host-settings=ignore"}
	cmd := exec.Command(s.runsc, append(flags, args...)...)
	log, err := os.CreateTemp(s.root, "log-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	// A pipe would be held by the sandbox.
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	if args[0] == "restore" {
		s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	out, _ := os.ReadFile(log.Name())
	if err != nil {
		s.t.Fatalf("runsc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *stock) restore(id string) {
	s.do("restore", "--detach", "--bundle", s.bundle, "--image-path", s.images, id)
}

func (s *stock) delete(id string) { s.do("delete", "--force", id) }

func (s *stock) pid(id string) int {
	var state struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(s.do("state", id)), &state); err != nil {
		s.t.Fatal(err)
	}
	return state.PID
}

// cpu is what processes have used, without the children that they reaped.
func cpu(pids ...int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	var total time.Duration
	for _, p := range pids {
		f := statFields(p)
		if len(f) < 13 {
			continue
		}
		for _, field := range f[11:13] {
			n, _ := strconv.Atoi(field)
			total += time.Duration(n) * tick
		}
	}
	return total
}

// pss is the proportional memory of a process and its descendants, in KiB.
func pss(pid int) int {
	total := 0
	for _, p := range familyOf(pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				n, _ := strconv.Atoi(strings.Fields(rest)[0])
				total += n
			}
		}
	}
	return total
}
