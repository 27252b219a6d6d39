package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"brood/internal/base/life"
	"brood/internal/run"
)

// cgroup1 counts with the memory and cpuacct controllers of version 1.
//
// Moving a process into a cgroup costs up to milliseconds, and what it started
// before the move is not counted. So nothing is moved: every slot has a thread
// that lives in the slot's cgroups, and a process started by that thread is
// born there. Slots are used again, since the kernel keeps a removed cgroup
// for as long as any page that was read in it is cached.
type cgroup1 struct {
	group       *life.Group
	memory, cpu string // our own cgroups, the slots' parents

	mu    sync.Mutex // guards the fields below
	free  []*slot1
	all   []*slot1
	count int
}

// newCgroup1 returns nil where this process may not make cgroups.
func newCgroup1(group *life.Group) *cgroup1 {
	b := &cgroup1{group: group, memory: ownCgroup("memory"), cpu: ownCgroup("cpuacct")}
	if b.memory == "" || b.cpu == "" {
		return nil
	}
	sweepCgroups(b.memory)
	if b.cpu != b.memory {
		sweepCgroups(b.cpu)
	}
	s, err := b.newSlot()
	if err != nil {
		return nil
	}
	b.free = []*slot1{s}
	return b
}

// site returns a free slot, or makes one. When the system gives no more, the
// attempt is sampled.
func (b *cgroup1) site() site {
	b.mu.Lock()
	for len(b.free) > 0 {
		s := b.free[len(b.free)-1]
		b.free = b.free[:len(b.free)-1]
		b.mu.Unlock()
		// What an earlier task left on purpose would be counted with this one's.
		if len(s.members()) == 0 {
			s.reset()
			return s
		}
		b.mu.Lock()
	}
	b.mu.Unlock()
	s, err := b.newSlot()
	if err != nil {
		return &procSite{}
	}
	s.reset()
	return s
}

func (b *cgroup1) close(kill bool) {
	b.mu.Lock()
	all := b.all
	b.all, b.free = nil, nil
	b.mu.Unlock()
	for _, s := range all {
		s.close(kill)
	}
}

// newSlot makes the cgroups of a slot and the thread that lives in them.
func (b *cgroup1) newSlot() (*slot1, error) {
	b.mu.Lock()
	b.count++
	name := cgroupPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(b.count)
	b.mu.Unlock()
	s := &slot1{
		backend: b,
		memory:  filepath.Join(b.memory, name),
		cpu:     filepath.Join(b.cpu, name),
		starts:  make(chan start1),
	}
	if err := s.make(); err != nil {
		s.remove()
		return nil, err
	}
	ready := make(chan error, 1)
	b.group.Go("tasks' cgroup", func(context.Context) error { s.live(ready); return nil })
	if err := <-ready; err != nil {
		s.remove()
		return nil, err
	}
	b.mu.Lock()
	b.all = append(b.all, s)
	b.mu.Unlock()
	return s, nil
}

// slot1 is a cgroup in both hierarchies, and the thread in it.
type slot1 struct {
	backend     *cgroup1
	memory, cpu string
	starts      chan start1

	used, stat, peak *os.File // cpuacct.usage, memory.stat, memory.max_usage_in_bytes

	mu     sync.Mutex // guards the fields below
	buf    []byte
	before time.Duration // CPU time when the attempt began
	most   int64         // of the samples
}

type start1 struct {
	command command
	done    chan<- started1
}

type started1 struct {
	process *os.Process
	err     error
}

func (s *slot1) make() (err error) {
	for _, dir := range []string{s.memory, s.cpu} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if s.used, err = os.Open(filepath.Join(s.cpu, "cpuacct.usage")); err != nil {
		return err
	}
	if s.stat, err = os.Open(filepath.Join(s.memory, "memory.stat")); err != nil {
		return err
	}
	s.peak, err = os.OpenFile(filepath.Join(s.memory, "memory.max_usage_in_bytes"), os.O_RDWR, 0)
	return err
}

// live is the slot's thread. It is never unlocked, so that the thread ends
// with the function and nothing else of this program runs in the cgroup.
func (s *slot1) live(ready chan<- error) {
	runtime.LockOSThread()
	tid := []byte(strconv.Itoa(syscall.Gettid()))
	err := errors.Join(
		os.WriteFile(filepath.Join(s.memory, "tasks"), tid, 0),
		os.WriteFile(filepath.Join(s.cpu, "tasks"), tid, 0))
	ready <- err
	if err == nil {
		for st := range s.starts {
			p, err := os.StartProcess(st.command.path, st.command.argv, st.command.attr())
			st.done <- started1{p, err}
		}
	}
	// The main thread never ends: it must go home.
	_ = os.WriteFile(filepath.Join(s.backend.memory, "tasks"), tid, 0)
	_ = os.WriteFile(filepath.Join(s.backend.cpu, "tasks"), tid, 0)
	s.remove()
}

func (s *slot1) start(c command) (*os.Process, error) {
	done := make(chan started1, 1)
	s.starts <- start1{c, done}
	r := <-done
	return r.process, r.err
}

// members leaves out this program, whose thread is in the cgroup.
func (s *slot1) members() []int {
	pids := membersOf(filepath.Join(s.cpu, "cgroup.procs"))
	self := os.Getpid()
	kept := pids[:0]
	for _, pid := range pids {
		if pid != self {
			kept = append(kept, pid)
		}
	}
	return kept
}

func (s *slot1) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = 0
	s.before = time.Duration(readNumber(s.used))
	// Any number sets the peak to what is used now.
	_, _ = s.peak.WriteAt([]byte("0"), 0)
}

// memoryNow reads what processes have: neither the cache of files that they read
// nor what the kernel keeps for it, which no one needs to make room for.
func (s *slot1) memoryNow() (resident, cache int64) {
	if s.buf == nil {
		s.buf = make([]byte, 4096)
	}
	m := counters(readStart(s.stat, s.buf))
	shared := m["total_shmem"]
	return m["total_rss"] + shared, m["total_cache"] - shared
}

func (s *slot1) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	resident, _ := s.memoryNow()
	s.most = max(s.most, resident)
}

// usage: the kernel's own peak holds the cache too; without what of it is
// there in the end it is never too much, and neither is any of the others.
func (s *slot1) usage(u rusage) run.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	resident, cache := s.memoryNow()
	peak := readNumber(s.peak) - cache
	return run.Usage{
		CPU:        max(0, time.Duration(readNumber(s.used))-s.before),
		PeakMemory: max(s.most, resident, peak, u.peak),
	}
}

func (s *slot1) release() {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, s)
}

// close ends the thread. What tasks left behind is killed, or moved to where
// this program is.
func (s *slot1) close(kill bool) {
	if kill {
		waitFor(grace, func() bool {
			pids := s.members()
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return len(pids) == 0
		})
	}
	if left := s.members(); len(left) > 0 {
		evict(left, filepath.Join(s.backend.memory, "cgroup.procs"))
		evict(left, filepath.Join(s.backend.cpu, "cgroup.procs"))
	}
	close(s.starts)
}

func (s *slot1) remove() {
	for _, f := range []*os.File{s.used, s.stat, s.peak} {
		if f != nil {
			f.Close()
		}
	}
	// A cgroup that cannot be removed now is swept by a later worker.
	_ = os.Remove(s.memory)
	_ = os.Remove(s.cpu)
}
