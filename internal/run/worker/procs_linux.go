package worker

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"brood/internal/run"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every platform
// that Go runs on.
const clockTick = time.Second / 100

var pageSize = int64(os.Getpagesize())

// procs counts by looking at the process tree below the task's own processes.
// A process that leaves the tree, because its parent died, is not seen again.
type procs struct{}

func (procs) site() site { return &procSite{} }
func (procs) close(bool) {}

type procSite struct {
	mu    sync.Mutex // guards the fields below
	roots []int
	cpu   time.Duration
	peak  int64
}

func (s *procSite) start(c command) (*os.Process, error) {
	p, err := os.StartProcess(c.path, c.argv, c.attr())
	if err == nil {
		s.mu.Lock()
		s.roots = append(s.roots, p.Pid)
		s.mu.Unlock()
	}
	return p, err
}

func (s *procSite) tree() []int {
	s.mu.Lock()
	roots := append([]int(nil), s.roots...)
	s.mu.Unlock()
	return descendants(roots)
}

// members leaves out the roots: they lead their groups, and a number that is
// not in use any more may be another's.
func (s *procSite) members() []int { return nil }

func (s *procSite) sample() {
	cpu, mem := usageOf(s.tree())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cpu = max(s.cpu, cpu)
	s.peak = max(s.peak, mem)
}

func (s *procSite) usage(u rusage) run.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return run.Usage{CPU: max(s.cpu, u.cpu), PeakMemory: max(s.peak, u.peak), Sampled: true}
}

func (s *procSite) release() {}

// descendants lists the processes of the trees below roots, roots included.
func descendants(roots []int) []int {
	all := append([]int(nil), roots...)
	for i := 0; i < len(all); i++ {
		dir := "/proc/" + strconv.Itoa(all[i]) + "/task/"
		threads, err := os.ReadDir(dir)
		if err != nil {
			continue // it ended
		}
		for _, t := range threads {
			b, err := os.ReadFile(dir + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, f := range bytes.Fields(b) {
				if pid, err := strconv.Atoi(string(f)); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// usageOf adds up what processes used: CPU time with that of the children that
// they waited for, and resident memory, in which what may be shared counts
// once, as much as the one that has most of it.
func usageOf(pids []int) (cpu time.Duration, mem int64) {
	var shared int64
	for _, pid := range pids {
		proc := "/proc/" + strconv.Itoa(pid)
		if b, err := os.ReadFile(proc + "/stat"); err == nil {
			cpu += cpuOfStat(b)
		}
		if b, err := os.ReadFile(proc + "/statm"); err == nil {
			own, common := memOfStatm(b)
			mem += own
			shared = max(shared, common)
		}
	}
	return cpu, mem + shared
}

// cpuOfStat reads utime, stime, cutime and cstime: the fields 14 to 17. The
// second field is the program's name, in parentheses and with whatever in it.
func cpuOfStat(b []byte) time.Duration {
	at := bytes.LastIndexByte(b, ')')
	if at < 0 {
		return 0
	}
	f := bytes.Fields(b[at+1:])
	if len(f) < 15 {
		return 0
	}
	var ticks int64
	for _, s := range f[11:15] {
		n, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// memOfStatm reads what is resident: what is a process's own, and what is
// backed by files or shared.
func memOfStatm(b []byte) (own, shared int64) {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0, 0
	}
	resident, err1 := strconv.ParseInt(string(f[1]), 10, 64)
	common, err2 := strconv.ParseInt(string(f[2]), 10, 64)
	if err1 != nil || err2 != nil || common > resident {
		return 0, 0
	}
	return (resident - common) * pageSize, common * pageSize
}
