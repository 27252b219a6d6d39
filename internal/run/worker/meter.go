package worker

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"brood/internal/base/life"
	"brood/internal/run"
)

// How often what running tasks use is read: often while one is young, since
// many tasks are over within a second.
const (
	sampleYoung = 20 * time.Millisecond
	sampleOld   = 100 * time.Millisecond
	young       = 200 * time.Millisecond
)

// command is a process to start.
type command struct {
	path  string
	argv  []string
	dir   string
	env   []string
	files []*os.File
	// foreground is the terminal in whose foreground it runs; nil: in none's.
	foreground *os.File
}

// attr are the attributes that every process of a task has: it leads a process
// group of its own.
func (c command) attr() *os.ProcAttr {
	sys := &syscall.SysProcAttr{Setpgid: true}
	if c.foreground != nil {
		sys.Foreground, sys.Ctty = true, int(c.foreground.Fd())
	}
	return &os.ProcAttr{Dir: c.dir, Env: c.env, Files: c.files, Sys: sys}
}

// rusage is what the system says of processes that were waited for.
type rusage struct {
	cpu time.Duration
	// peak is the most that any one of them had resident, in bytes; 0 is unknown.
	peak int64
}

func (u *rusage) add(e ending) {
	u.cpu += e.cpu()
	u.peak = max(u.peak, peakOf(e.usage))
}

// site is where the processes of one attempt run and are counted. start,
// usage and release are called by the attempt, one after the other; sample and
// members at any time before release.
type site interface {
	start(command) (*os.Process, error)
	// members lists the processes that are in it, where that can be known.
	members() []int
	// sample reads what is used now.
	sample()
	usage(rusage) run.Usage
	// release gives the site back; what still runs in it lives on.
	release()
}

// backend makes sites in one of the ways in which a system counts.
type backend interface {
	site() site
	// close takes everything back. With kill, processes that tasks left behind
	// are ended.
	close(kill bool)
}

// meter hands out sites and samples those in use.
type meter struct {
	group *life.Group
	// cgroups says that they may be used.
	cgroups bool

	once    sync.Once
	backend backend

	mu       sync.Mutex // guards the fields below
	active   map[site]time.Time
	sampling bool // a goroutine does
	// idle has an entry when the last site was released, so that the goroutine
	// ends at once.
	idle chan struct{}
}

func newMeter(group *life.Group, sampled bool) *meter {
	return &meter{group: group, cgroups: !sampled, active: map[site]time.Time{}, idle: make(chan struct{}, 1)}
}

// acquire returns a site that is sampled until its release.
func (m *meter) acquire() *meteredSite {
	m.once.Do(func() { m.backend = newBackend(m.group, m.cgroups) })
	s := &meteredSite{site: m.backend.site(), meter: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active[s.site] = time.Now()
	if !m.sampling {
		m.sampling = true
		m.group.Go("sampling", func(context.Context) error { m.loop(); return nil })
	}
	return s
}

// loop samples until no site is in use.
func (m *meter) loop() {
	timer := time.NewTimer(sampleYoung)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.idle:
		}
		sites, pause := m.due()
		if len(sites) == 0 {
			return
		}
		for _, s := range sites {
			s.sample()
		}
		timer.Reset(pause)
	}
}

// due returns the sites in use and when to look again.
func (m *meter) due() ([]site, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.active) == 0 {
		m.sampling = false
		return nil, 0
	}
	sites := make([]site, 0, len(m.active))
	pause := sampleOld
	for s, since := range m.active {
		sites = append(sites, s)
		if time.Since(since) < young {
			pause = sampleYoung
		}
	}
	return sites, pause
}

// meteredSite is a site that its meter samples.
type meteredSite struct {
	site
	meter *meter
}

func (s *meteredSite) release() {
	s.meter.mu.Lock()
	delete(s.meter.active, s.site)
	if len(s.meter.active) == 0 {
		select {
		case s.meter.idle <- struct{}{}:
		default:
		}
	}
	s.meter.mu.Unlock()
	s.site.release()
}

func (m *meter) close(kill bool) {
	// After this no backend is made any more, and none was if there was no order.
	m.once.Do(func() {})
	if m.backend != nil {
		m.backend.close(kill)
	}
}
