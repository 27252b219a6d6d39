package batch_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

// checker keeps books of its own from what goes into a batch and what comes
// out, and says where the batch's behaviour breaks a rule. It knows the rules,
// not the code.
type checker struct {
	w      *world
	names  []id.Name
	groups []int // group of each fork
	source []string
	broken error
	met    map[string]int

	seq       uint64
	items     map[int]*batch.Item
	done      *batch.Summary
	cancelled bool
	clean     bool // no machine failed, nobody died or cancelled so far

	placed  map[placeKey]uint32
	came    map[placeKey]uint32 // items that came from a placement
	starts  map[batch.EffectID]batch.StartFork
	live    map[int]batch.EffectID // the start that may become the fork
	running map[id.Machine]int
	peak    map[id.Machine]int
	where   map[int]map[id.Machine]int // attempt at which a fork was started on a machine
	grants  map[batch.EffectID]*grantBook
	copies  map[copyKey]*copyBook
	ended   map[int]string // causes of failures that were delivered for the live start
	picture map[id.Machine]roster.Machine
	temps   map[digest.Digest]bool
}

type placeKey struct {
	group   uint32
	host    id.Machine
	attempt uint32
}

type grantBook struct {
	machine  id.Machine
	asked    int
	memory   uint64
	answered bool
	balance  int // places that are ours
	inUse    int // starting or ready under it
}

type copyKey struct {
	to     id.Machine
	digest digest.Digest
}

type copyBook struct {
	shown time.Duration
	began bool
}

func newChecker(w *world) *checker {
	c := &checker{
		w: w, names: w.b.Names(), met: map[string]int{}, items: map[int]*batch.Item{}, clean: true,
		placed: map[placeKey]uint32{}, came: map[placeKey]uint32{}, starts: map[batch.EffectID]batch.StartFork{}, live: map[int]batch.EffectID{},
		running: map[id.Machine]int{}, peak: map[id.Machine]int{}, where: map[int]map[id.Machine]int{}, grants: map[batch.EffectID]*grantBook{},
		copies: map[copyKey]*copyBook{}, ended: map[int]string{}, picture: map[id.Machine]roster.Machine{}, temps: map[digest.Digest]bool{},
	}
	add := func(g int, source string, n uint32) {
		for range n {
			c.groups = append(c.groups, g)
			c.source = append(c.source, source)
		}
	}
	r := w.request
	for g, x := range r.Groups {
		add(g, x.Source, x.Count)
	}
	size := r.GroupSize
	if size == 0 {
		size = r.Count
	}
	for i := range r.Count {
		add(int(i/size), r.Source, 1)
	}
	return c
}

func (c *checker) fail(format string, args ...any) {
	if c.broken == nil {
		c.broken = fmt.Errorf(format, args...)
	}
}

func (c *checker) maxParallel() int {
	if c.w.request.MaxParallelPerHost == 0 {
		return 4
	}
	return int(c.w.request.MaxParallelPerHost)
}

func (c *checker) auto() bool { return c.w.request.On == "auto" }

// step takes one event and its effects into the books.
func (c *checker) step(ev batch.Event, out []batch.Effect) error {
	c.before(ev)
	for _, e := range out {
		c.effect(e)
	}
	c.after(ev, out)
	return c.broken
}

func (c *checker) before(ev batch.Event) {
	switch e := ev.(type) {
	case batch.Machines:
		c.picture = map[id.Machine]roster.Machine{}
		for _, m := range e.List {
			c.picture[m.Name] = m
		}
	case batch.Reserved:
		if g := c.grants[e.Grant]; g != nil && !g.answered {
			g.answered, g.balance = true, e.Count
			if e.Count < g.asked {
				c.met["partial grant"]++
			}
		}
	case batch.ReserveRefused:
		if g := c.grants[e.Grant]; g != nil && !g.answered {
			g.answered = true
			c.met["refused"]++
		}
	case batch.ForkReady:
		if c.live[e.Index] == e.Token {
			c.notStarting(e.Token, false)
		}
	case batch.ForkFailed:
		if c.live[e.Index] == e.Token && c.items[e.Index] == nil {
			c.ended[e.Index] = []string{"own", "host", "capacity"}[e.Cause]
			c.notStarting(e.Token, true)
			delete(c.live, e.Index)
		}
	case batch.Synced:
		c.met["synced"]++
	case batch.MachineFailed:
		c.clean = false
		c.forgetAsked(e.Machine)
	case batch.Tick:
		c.forgetAsked("")
	case batch.Cancel:
		c.clean = false
		c.forgetAsked("")
		c.met["cancel"]++
	case batch.Restarted:
		c.clean = false
		c.restarted(e)
	}
}

// forgetAsked forgets reservations that were asked of a machine (of all when
// empty) and are not answered: the batch may have given them up.
func (c *checker) forgetAsked(m id.Machine) {
	for _, g := range c.grants {
		if !g.answered && (m == "" || m == g.machine) {
			g.asked = 0
		}
	}
}

func (c *checker) restarted(e batch.Restarted) {
	for _, a := range e.Alive {
		if c.live[a.Index] == a.Token && c.starts[a.Token].Machine == id.Local {
			c.notStarting(a.Token, false)
		}
	}
	for grant, g := range c.grants {
		if g.machine == id.Local { // reservations end with the process
			g.answered, g.balance, g.inUse = true, 0, 0
			for token, s := range c.starts {
				if s.Grant == grant {
					s.Grant = 0
					c.starts[token] = s
				}
			}
		}
	}
}

// notStarting notes that a start has come to its end.
func (c *checker) notStarting(token batch.EffectID, freed bool) {
	s, ok := c.starts[token]
	if !ok {
		return
	}
	if s.CPUs != 0 { // CPUs 0 marks one whose end was noted
		c.running[s.Machine]--
		s.CPUs = 0
		c.starts[token] = s
	}
	if g := c.grants[s.Grant]; g != nil && freed {
		g.inUse--
	}
}

func (c *checker) isStarting(name id.Name) bool {
	for index, token := range c.live {
		if c.names[index] == name && c.starts[token].CPUs != 0 {
			return true
		}
	}
	return false
}

func (c *checker) effect(e batch.Effect) {
	switch e := e.(type) {
	case batch.Emit:
		c.record(e.Record)
	case batch.Reserve:
		c.reserve(e)
	case batch.Release:
		c.release(e)
	case batch.StartFork:
		c.start(e)
	case batch.RemoveFork:
		if c.items[e.Index] != nil && c.items[e.Index].Error == "" && c.live[e.Index] == e.Token {
			c.fail("the ready fork %s is to be removed", e.Name)
		}
		if c.live[e.Index] == e.Token {
			if strings.Contains(e.Why, "restart") && c.starts[e.Token].Attempt > 0 && c.ended[e.Index] == "restart" {
				c.met["interrupted twice"]++
			}
			c.ended[e.Index] = "machine"
			if strings.Contains(e.Why, "restart") {
				c.ended[e.Index] = "restart"
			}
			c.notStarting(e.Token, true)
			delete(c.live, e.Index)
		}
	case batch.EnsureCheckpoint:
		if c.done != nil {
			c.fail("a copy to %s begins after the end", e.Machine)
		}
	case batch.DeleteTempCheckpoint:
		c.met["temp deleted"]++
		c.temps[e.Digest] = true
	}
}

// reserve holds the batch to the picture it was given: for auto it never asks
// for more than is free there, counting what it has itself.
func (c *checker) reserve(e batch.Reserve) {
	if g := c.grants[e.ID]; g != nil {
		if !g.answered {
			g.asked = e.Count // asked again after a restart
		}
		return
	}
	m, seen := c.picture[e.Machine]
	count, memory := c.own(e.Machine)
	c.grants[e.ID] = &grantBook{machine: e.Machine, asked: e.Count, memory: e.MemoryMiB}
	switch {
	case e.Count < 1:
		c.fail("a reservation for %d forks on %s", e.Count, e.Machine)
	case !seen && c.auto() && e.Machine != id.Local:
		c.fail("forks for %s, which nobody has seen", e.Machine)
	case c.auto() && seen && c.clean && (!m.Online || !m.Provides && m.Name != id.Local):
		c.fail("forks for %s, which takes none", e.Machine)
	case c.auto() && seen && c.clean && m.ReservedMemoryMiB+memory+uint64(e.Count)*e.MemoryMiB > m.MemoryMiB:
		c.fail("%d forks of %d MiB for %s, which has %d of %d MiB promised, %d MiB by this batch", e.Count, e.MemoryMiB, e.Machine, m.ReservedMemoryMiB, m.MemoryMiB, memory)
	case seen && c.clean && m.SandboxLimit > 0 && m.SandboxesUsed+count+e.Count > m.SandboxLimit:
		c.fail("%d forks for %s, which has %d of %d sandboxes, %d of this batch", e.Count, e.Machine, m.SandboxesUsed, m.SandboxLimit, count)
	}
}

// own is what the batch has on a machine by the checker's books.
func (c *checker) own(m id.Machine) (count int, memory uint64) {
	for _, g := range c.grants {
		if g.machine != m {
			continue
		}
		n := g.balance
		if !g.answered {
			n = g.asked
		}
		count += n
		memory += uint64(n) * g.memory
	}
	return count, memory
}

func (c *checker) release(e batch.Release) {
	g := c.grants[e.Grant]
	switch {
	case g == nil || !g.answered:
		c.fail("release of the unknown grant %d", e.Grant)
	case e.Count < 1 || e.Count > g.balance:
		c.fail("release of %d places of grant %d, which has %d", e.Count, e.Grant, g.balance)
	default:
		g.balance -= e.Count
	}
}

func (c *checker) start(e batch.StartFork) {
	if s, again := c.starts[e.ID]; again {
		if c.live[e.Index] != e.ID || s.CPUs == 0 {
			c.fail("start %d of %s is repeated after its end", e.ID, e.Name)
		}
		return
	}
	if token, ok := c.live[e.Index]; ok {
		c.fail("%s is started as %d while %d may still become it", e.Name, e.ID, token)
	}
	if c.items[e.Index] != nil || c.cancelled || c.done != nil {
		c.fail("%s is started after its end, the batch's, or the cancel", e.Name)
	}
	if e.Name != c.names[e.Index] || e.Group != c.groups[e.Index] || e.Source != c.source[e.Index] {
		c.fail("start %+v does not fit fork %d", e, e.Index)
	}
	if last, ok := c.where[e.Index][e.Machine]; ok && last != e.Attempt {
		c.fail("%s goes to %s again", e.Name, e.Machine)
	}
	if c.where[e.Index] == nil {
		c.where[e.Index] = map[id.Machine]int{}
	}
	c.where[e.Index][e.Machine] = e.Attempt
	if c.ended[e.Index] == "own" {
		c.fail("%s failed for its own reason and is started again", e.Name)
	}
	if most := c.attempts(); e.Attempt > most {
		c.fail("attempt %d of %s, %d are allowed", e.Attempt, e.Name, most)
	}
	if c.placed[placeKey{uint32(e.Group), e.Machine, uint32(e.Attempt)}] == 0 {
		c.fail("%s starts before its placement is recorded", e.Name)
	}
	c.starts[e.ID], c.live[e.Index] = e, e.ID
	c.running[e.Machine]++
	c.peak[e.Machine] = max(c.peak[e.Machine], c.running[e.Machine])
	if g := c.grants[e.Grant]; g == nil || !g.answered || g.machine != e.Machine {
		c.fail("%s starts without a reservation", e.Name)
	} else {
		g.inUse++
	}
	if n := c.w.machine(e.Machine).atOnce; n > 0 && c.running[e.Machine] > n {
		c.fail("%d forks start at once on %s, which starts %d", c.running[e.Machine], e.Machine, n)
	}
	if c.running[e.Machine] > c.maxParallel() {
		c.fail("%d forks start at once on %s", c.running[e.Machine], e.Machine)
	}
}

func (c *checker) attempts() int {
	r := c.w.request
	if r.NoRetry || !c.auto() {
		return 1
	}
	return 1 + int(max(r.Retries, 1))
}

func (c *checker) record(r batch.Record) {
	c.seq++
	if r.Seq != c.seq {
		c.fail("record %d is numbered %d", c.seq, r.Seq)
	}
	if c.done != nil {
		c.fail("a record after done: %+v", r)
	}
	switch {
	case r.Placement != nil:
		p := r.Placement
		c.placed[placeKey{p.Group, p.Host, p.Attempt}] += p.Count
		if p.Count == 0 || p.Reason == "" || p.Attempt == 0 || int(p.Attempt) > c.attempts() {
			c.fail("placement %+v", p)
		}
		if strings.Contains(p.Reason, "part") {
			c.met["split"]++
		}
	case r.Sync != nil:
		c.sync(r.Sync)
	case r.Item != nil:
		c.item(r.Item)
	case r.Done != nil:
		c.summary(r.Done)
	default:
		c.fail("an empty record")
	}
}

func (c *checker) sync(s *batch.Sync) {
	key := copyKey{s.To, s.Digest}
	k := c.copies[key]
	if k == nil {
		k = &copyBook{}
		c.copies[key] = k
	}
	if k.began && !s.Done && c.w.now-k.shown < batch.SyncEvery {
		c.fail("progress of a copy to %s %v after the last", s.To, c.w.now-k.shown)
	}
	k.began, k.shown = true, c.w.now
	if s.Done {
		delete(c.copies, key)
	} else if s.Verified {
		c.fail("verified before it is done")
	}
}

func (c *checker) item(it *batch.Item) {
	i := int(it.Index)
	if i >= len(c.names) || c.items[i] != nil {
		c.fail("a second item of fork %d", i)
		return
	}
	c.items[i] = it
	if it.Name != c.names[i] || int(it.Group) != c.groups[i] || it.Source != c.source[i] {
		c.fail("item %+v does not fit fork %d", it, i)
	}
	if it.Attempt < 1 || int(it.Attempt) > c.attempts() {
		c.fail("item of attempt %d, %d are allowed", it.Attempt, c.attempts())
	}
	key := placeKey{it.Group, it.Host, it.Attempt}
	if it.Error == "" {
		c.met["ready"]++
		if it.ErrorCode != "" || it.Space == "" {
			c.fail("ready item %+v", it)
		}
		if s := c.starts[c.live[i]]; c.live[i] == 0 || s.Machine != it.Host || s.Attempt != int(it.Attempt) || s.CPUs != 0 {
			c.fail("%s is ready without an answer to its start", it.Name)
		}
		c.came[key]++
	} else {
		c.met[string(it.ErrorCode)]++
		if it.ErrorCode == "" || it.Space != "" {
			c.fail("failed item %+v", it)
		}
		if _, live := c.live[i]; live {
			c.fail("%s failed while its start goes on", it.Name)
		}
		if c.ended[i] == "own" {
			c.met["own"]++
			c.came[key]++
			if it.ErrorCode != batch.CodeForkFailed {
				c.fail("%s failed for its own reason: %s", it.Name, it.ErrorCode)
			}
		}
	}
	if it.Attempt > 1 {
		c.met["attempt>1"]++
	}
	if c.came[key] > c.placed[key] {
		c.fail("%d items came from %+v, %d were placed", c.came[key], key, c.placed[key])
	}
}

func (c *checker) summary(s *batch.Summary) {
	c.done = s
	c.met["done"]++
	var ok, bad uint32
	per := map[id.Machine]uint32{}
	for _, it := range c.items {
		if it.Error == "" {
			ok++
			per[it.Host]++
		} else {
			bad++
		}
	}
	if len(c.items) != len(c.names) || s.OK != ok || s.Failed != bad {
		c.fail("summary %+v, items: %d ready, %d failed of %d", s, ok, bad, len(c.names))
	}
	for _, m := range c.w.machines {
		if s.PerHost[m.name] != per[m.name] || int(s.PeakParallel[m.name]) != c.peak[m.name] {
			c.fail("%s: summary says %d ready, %d at once; it was %d and %d", m.name, s.PerHost[m.name], s.PeakParallel[m.name], per[m.name], c.peak[m.name])
		}
	}
	if len(c.copies) > 0 {
		c.fail("done while %d copies have no end", len(c.copies))
	}
}

// after checks what must hold between two steps.
func (c *checker) after(ev batch.Event, out []batch.Effect) {
	if _, ok := ev.(batch.Cancel); ok {
		c.cancelled = true
	}
	for id, g := range c.grants {
		if g.answered && g.inUse > g.balance {
			c.fail("%d forks are under grant %d, which has %d places", g.inUse, id, g.balance)
		}
	}
	if _, ok := ev.(batch.Machines); ok && c.auto() && c.clean {
		c.fullWhenSaid(out)
	}
	ok, bad := c.w.b.Counts()
	if ok+bad != len(c.items) {
		c.fail("%d forks counted, %d items", ok+bad, len(c.items))
	}
}

// fullWhenSaid checks that no machine could have taken a fork that found no
// room at its first placement.
func (c *checker) fullWhenSaid(out []batch.Effect) {
	for _, r := range records(out) {
		it := r.Item
		if it == nil || it.ErrorCode != batch.CodeNoCapacity && it.ErrorCode != batch.CodeNoHost || strings.Contains(it.Error, "no other machine") {
			continue
		}
		src := c.w.sources[0]
		for _, s := range c.w.sources {
			if s.Ref == it.Source {
				src = s
			}
		}
		memory := c.counted(src)
		for _, m := range c.picture {
			count, mine := c.own(m.Name)
			if m.Available() && m.Missing(src.Needs) == "" && m.Slots(1<<30) > count && m.ReservedMemoryMiB+mine+memory <= m.MemoryMiB {
				c.fail("%s: %s, but %s has room", it.Name, it.Error, m.Name)
			}
			if it.ErrorCode == batch.CodeNoHost && m.Available() && m.Missing(src.Needs) == "" {
				c.fail("%s: %s, but %s can restore it", it.Name, it.Error, m.Name)
			}
		}
	}
}

func (c *checker) counted(s batch.Source) uint64 {
	switch {
	case c.w.request.MemoryMiB > 0:
		return c.w.request.MemoryMiB
	case len(s.Held) > 0:
		return s.MemoryMiB
	}
	return batch.DefaultMemoryMiB
}

// end checks the world after everything has arrived.
func (c *checker) end() error {
	if c.broken != nil {
		return c.broken
	}
	if c.done == nil {
		return errors.New("no done record")
	}
	per := map[id.Machine]int{}
	for i, it := range c.items {
		if it.Error == "" {
			per[it.Host]++
			continue
		}
		if c.live[i] != 0 {
			return fmt.Errorf("%s failed and start %d is not accounted for", it.Name, c.live[i])
		}
	}
	for _, m := range c.w.machines {
		for token, s := range m.sandboxes {
			it := c.items[s.index]
			if s.state == "ready" && (it.Error != "" || it.Host != m.name || c.live[s.index] != token) {
				return fmt.Errorf("a sandbox %s of start %d is left on %s; its fork is %+v", s.name, token, m.name, it)
			}
		}
		if count, _ := m.mine(); !m.failed && !c.w.restarted && count != per[m.name] {
			return fmt.Errorf("%s keeps %d places for %d forks", m.name, count, per[m.name])
		}
	}
	return c.tempsDeleted()
}

// tempsDeleted checks that a temporary checkpoint goes at the end exactly when
// nothing came of it.
func (c *checker) tempsDeleted() error {
	used := map[string]bool{}
	asked := map[string]bool{}
	for i, it := range c.items {
		used[it.Source] = used[it.Source] || it.Error == ""
		asked[c.source[i]] = true
	}
	for _, s := range c.w.sources {
		if want := s.Temp && asked[s.Ref] && !used[s.Ref]; want != c.temps[s.Digest] {
			return fmt.Errorf("temporary checkpoint of %s: deleted %v, want %v", s.Ref, c.temps[s.Digest], want)
		}
	}
	return nil
}
