package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"brood/internal/run"
)

// cgroup2 counts with version 2. A process is born in the cgroup of its
// attempt, which is made for it and removed after it: a peak cannot be set back
// on most kernels.
//
// Where the memory controller is not handed down to us, CPU time and the list
// of processes still are exact, and memory is sampled over that list.
type cgroup2 struct {
	parent string
	memory bool

	mu    sync.Mutex // guards the fields below
	left  []string   // cgroups with processes that tasks left behind
	count int
}

// newCgroup2 returns nil where this process may not make cgroups and start
// processes in them.
func newCgroup2() *cgroup2 {
	own := ownCgroup("")
	if own == "" {
		return nil
	}
	b := &cgroup2{parent: own}
	sweepCgroups(own)
	handed, err := os.ReadFile(filepath.Join(own, "cgroup.subtree_control"))
	if err != nil {
		return nil
	}
	b.memory = slices.Contains(strings.Fields(string(handed)), "memory")
	if !b.probe() {
		return nil
	}
	return b
}

// probe starts the smallest program there is in a cgroup.
func (b *cgroup2) probe() bool {
	s, err := b.newSite()
	if err != nil {
		return false
	}
	defer s.release()
	p, err := s.start(command{path: "/bin/sh", argv: []string{"sh", "-c", ":"}, dir: "/", files: []*os.File{nil, nil, nil}})
	if err != nil {
		return false
	}
	_, err = p.Wait()
	return err == nil
}

func (b *cgroup2) site() site {
	s, err := b.newSite()
	if err != nil {
		return &procSite{}
	}
	return s
}

func (b *cgroup2) newSite() (*site2, error) {
	b.mu.Lock()
	b.count++
	dir := filepath.Join(b.parent, cgroupPrefix+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(b.count))
	b.mu.Unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &site2{backend: b, dir: dir, handle: f}, nil
}

// close goes through what tasks left behind.
func (b *cgroup2) close(kill bool) {
	b.mu.Lock()
	left := b.left
	b.left = nil
	b.mu.Unlock()
	for _, dir := range left {
		procs := filepath.Join(dir, "cgroup.procs")
		if kill {
			waitFor(grace, func() bool {
				pids := membersOf(procs)
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				return len(pids) == 0
			})
		}
		evict(membersOf(procs), filepath.Join(b.parent, "cgroup.procs"))
		_ = os.Remove(dir) // else swept by a later worker
	}
}

// site2 is the cgroup of one attempt.
type site2 struct {
	backend *cgroup2
	dir     string
	handle  *os.File

	mu   sync.Mutex // guards most
	most int64      // of the samples
}

func (s *site2) start(c command) (*os.Process, error) {
	attr := c.attr()
	attr.Sys.UseCgroupFD = true
	attr.Sys.CgroupFD = int(s.handle.Fd())
	return os.StartProcess(c.path, c.argv, attr)
}

func (s *site2) members() []int { return membersOf(filepath.Join(s.dir, "cgroup.procs")) }

func (s *site2) counters(file string) map[string]int64 {
	b, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		return nil
	}
	return counters(b)
}

// memoryNow reads what processes have, and what the kernel keeps for them that
// no one needs to make room for.
func (s *site2) memoryNow() (resident, cache int64) {
	if !s.backend.memory {
		_, mem := usageOf(s.members())
		return mem, 0
	}
	m := s.counters("memory.stat")
	return m["anon"] + m["shmem"], m["file"] - m["shmem"]
}

func (s *site2) sample() {
	resident, _ := s.memoryNow()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, resident)
}

func (s *site2) usage(u rusage) run.Usage {
	resident, cache := s.memoryNow()
	s.mu.Lock()
	defer s.mu.Unlock()
	used := run.Usage{
		CPU:        time.Duration(s.counters("cpu.stat")["usage_usec"]) * time.Microsecond,
		PeakMemory: max(s.most, resident, u.peak),
		Sampled:    !s.backend.memory,
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "memory.peak")); err == nil {
		if peak, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			used.PeakMemory = max(used.PeakMemory, peak-cache)
		}
	}
	return used
}

func (s *site2) release() {
	s.handle.Close()
	if os.Remove(s.dir) == nil {
		return
	}
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	s.backend.left = append(s.backend.left, s.dir)
}
