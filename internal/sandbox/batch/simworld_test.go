package batch_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

// world is one story: a batch, its shell, the machines and what happens.
type world struct {
	r        *rand.Rand
	now      time.Duration
	b        *batch.Batch
	twin     *batch.Batch // the same batch, never written and read back
	request  batch.Request
	sources  []batch.Source
	machines []*simMachine
	queue    letters
	posted   int
	check    *checker
	steps    int

	faults    int           // what may still go wrong
	restarts  int           // daemon deaths that may still come
	cancelAt  time.Duration // 0: never
	beating   bool
	latency   time.Duration // of what goes to machines, at most
	plague    id.Name       // forks of this name kill the daemon while they start
	restarted bool

	tell bool
	told strings.Builder
}

// letter is something on its way: to the batch (ev) or within the world (do).
type letter struct {
	at    time.Duration
	order int
	ev    batch.Event
	from  *simMachine // who sent ev, or where do happens; nil: the shell itself
	epoch int         // of the machine when it was posted
	do    func()
}

type letters []*letter

func (q letters) Len() int { return len(q) }
func (q letters) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q letters) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *letters) Push(x any)   { *q = append(*q, x.(*letter)) }
func (q *letters) Pop() any {
	l := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return l
}

func newWorld(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 0xb300d))}
	w.makeSources()
	w.makeMachines()
	w.makeRequest()
	w.latency = 30 * time.Millisecond
	if w.chance(25) {
		w.latency = 3 * time.Second
	}
	if w.chance(50) {
		w.faults = 1 + w.r.IntN(4)
	}
	if w.chance(30) {
		w.restarts = 1 + w.r.IntN(3)
	}
	if w.chance(15) {
		w.cancelAt = w.upTo(3 * time.Second)
	}
	return w
}

func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(1 + w.r.Int64N(int64(d))) }

func (w *world) makeSources() {
	for i := range 1 + w.r.IntN(3) {
		s := batch.Source{
			Ref: fmt.Sprintf("s%d", i), Digest: digest.Of([]byte{byte(i)}), MemoryMiB: uint64(256 * (1 + w.r.IntN(8))),
			StartMiB: uint64(w.r.IntN(300)), Temp: w.chance(30),
		}
		if w.chance(70) {
			s.Held = []id.Machine{id.Local}
		}
		if w.chance(20) {
			s.Needs.Driver = "qemu"
		}
		if w.chance(3) {
			s.Needs.Only = "m1"
		}
		w.sources = append(w.sources, s)
	}
}

func (w *world) makeMachines() {
	for i := range 1 + w.r.IntN(6) + w.r.IntN(2) {
		size := 1 + w.r.IntN(4)
		m := &simMachine{w: w, name: id.Machine(fmt.Sprintf("m%d", i)), online: true, provides: w.chance(94), cores: 2 * size, memory: uint64(16384 * size),
			drivers: []string{"gvisor"}, holds: map[digest.Digest]bool{}}
		if i == 0 {
			m.name = id.Local
		}
		if w.chance(60) {
			m.drivers = append(m.drivers, "qemu")
		}
		if w.chance(40) {
			m.limit = 1 + w.r.IntN(24)
		}
		if w.chance(40) {
			m.atOnce = 1 + w.r.IntN(6)
		}
		m.othersMemory = uint64(w.r.IntN(int(m.memory / 2)))
		m.othersCount = w.r.IntN(4)
		if w.chance(15) {
			m.othersMemory = m.memory - uint64(w.r.IntN(2000))
		}
		if w.chance(4) {
			m.online = false
		}
		m.clear()
		for _, s := range w.sources {
			if w.chance(30) || i == 0 && len(s.Held) > 0 {
				m.holds[s.Digest] = true
			}
		}
		w.machines = append(w.machines, m)
	}
}

func (w *world) makeRequest() {
	r := batch.Request{NamePrefix: "w", MaxParallelPerHost: uint32(w.r.IntN(4)), Retries: uint32(w.r.IntN(4)), NoRetry: w.chance(15)}
	switch n := w.r.IntN(10); {
	case n < 7:
		r.On = "auto"
	case n < 8:
		r.On = "host:m1"
	}
	if w.chance(30) {
		r.MemoryMiB = uint64(256 * (1 + w.r.IntN(16)))
	}
	if w.chance(20) {
		r.CPUs = uint32(1 + w.r.IntN(3))
	}
	most := 6
	if w.chance(10) {
		most = 40
	}
	if w.chance(40) {
		r.Source, r.Count, r.GroupSize = w.sources[0].Ref, uint32(1+w.r.IntN(3*most)), uint32(w.r.IntN(most))
	} else {
		for range 1 + w.r.IntN(4) {
			r.Groups = append(r.Groups, batch.Group{Source: w.sources[w.r.IntN(len(w.sources))].Ref, Count: uint32(1 + w.r.IntN(most))})
		}
	}
	w.request = r
	if w.chance(2) {
		w.plague, w.restarts = "w-0", 4
	}
}

// post puts a letter in the mail.
func (w *world) post(l letter) {
	w.posted++
	l.order = w.posted
	l.at += w.now
	if l.from != nil {
		l.epoch = l.from.epoch
	}
	heap.Push(&w.queue, &l)
}

// play tells the story to its end.
func (w *world) play() error {
	params := batch.Params{ID: "b", Now: epoch, Request: w.request, Sources: w.sources}
	var err error
	if w.b, err = batch.New(params); err != nil {
		return err
	}
	if w.twin, err = batch.New(params); err != nil {
		return err
	}
	w.check = newChecker(w)
	w.post(letter{ev: batch.Tick{}})
	if w.cancelAt > 0 {
		w.post(letter{at: w.cancelAt, ev: batch.Cancel{}})
	}
	w.plan()
	for w.steps = 0; ; w.steps++ {
		if w.steps > 20_000 {
			return fmt.Errorf("no end after %d steps", w.steps)
		}
		over, err := w.next()
		if err != nil {
			return fmt.Errorf("%s, step %d: %w", w.now, w.steps, err)
		}
		if over {
			break
		}
	}
	if !w.b.Done() {
		return fmt.Errorf("%s: nothing is on its way and the batch is not done", w.now)
	}
	return w.check.end()
}

// plan schedules the faults.
func (w *world) plan() {
	for range w.faults {
		at := w.upTo(2 * time.Second)
		if w.chance(30) {
			at = w.upTo(20 * time.Second)
		}
		w.post(letter{at: at, do: w.fault})
	}
	for range w.restarts {
		w.post(letter{at: w.upTo(2 * time.Second), do: w.restart})
	}
}

// next delivers the next letter, or a Tick when the batch wants one earlier.
func (w *world) next() (over bool, err error) {
	wake := w.b.NextWake()
	if len(w.queue) == 0 || !wake.IsZero() && wake.Before(epoch.Add(w.queue[0].at)) {
		if wake.IsZero() {
			return true, nil
		}
		w.now = max(w.now, wake.Sub(epoch))
		return false, w.deliver(batch.Tick{})
	}
	l := heap.Pop(&w.queue).(*letter)
	w.now = max(w.now, l.at)
	if m := l.from; m != nil {
		if l.epoch != m.epoch {
			return false, nil // the machine, or what it was doing, is gone
		}
		if m.silentUntil > w.now { // it arrives when the line is back
			l.at = m.silentUntil - w.now + w.upTo(time.Second)
			w.post(*l)
			return false, nil
		}
	}
	if l.do != nil {
		l.do()
		return false, w.check.broken
	}
	if w.chance(4) { // once more, later
		w.post(letter{at: w.upTo(time.Second), ev: l.ev, from: l.from})
	}
	return false, w.deliver(l.ev)
}

// deliver steps the batch, its twin, and everything that follows.
func (w *world) deliver(ev batch.Event) error {
	now := epoch.Add(w.now)
	out := w.b.Step(now, ev)
	w.say("> %s", show(ev))
	if same := w.twin.Step(now, ev); !reflect.DeepEqual(out, same) {
		return fmt.Errorf("after being written and read the batch does\n%+v\ninstead of\n%+v", out, same)
	}
	if err := w.save(); err != nil {
		return err
	}
	for _, e := range out {
		w.say("    %s", show(e))
	}
	if err := w.check.step(ev, out); err != nil {
		return err
	}
	for _, e := range out {
		w.perform(e)
	}
	w.startBeats()
	return nil
}

// save writes the state and reads it back.
func (w *world) save() error {
	data, err := w.b.MarshalJSON()
	if err != nil {
		return err
	}
	if w.b, err = batch.Decode(data); err != nil {
		return fmt.Errorf("%w\n%s", err, data)
	}
	return nil
}

func (w *world) say(format string, args ...any) {
	if w.tell {
		fmt.Fprintf(&w.told, "%-12s %s\n", w.now.Round(time.Microsecond), fmt.Sprintf(format, args...))
	}
}

func (w *world) machine(name id.Machine) *simMachine {
	for _, m := range w.machines {
		if m.name == name {
			return m
		}
	}
	return nil
}

// startBeats lets every machine show that it lives, every 2 s until the end.
func (w *world) startBeats() {
	if w.beating || w.b.Done() {
		return
	}
	w.beating = true
	w.post(letter{at: batch.BeatEvery, do: func() {
		w.beating = false
		for _, m := range w.machines {
			if m.online && m.silentUntil <= w.now && !w.chance(5) {
				w.post(letter{ev: batch.Beat{Machine: m.name, FreeMemoryMiB: m.free()}, from: m, at: w.upTo(50 * time.Millisecond)})
			}
		}
		w.startBeats()
	}})
}

// fault makes one machine fail, or joins one, or makes one fuller.
func (w *world) fault() {
	m := w.machines[w.r.IntN(len(w.machines))]
	switch w.r.IntN(5) {
	case 0, 1:
		m.crash()
	case 2:
		m.fallSilent()
	case 3:
		m.othersMemory = uint64(w.r.IntN(int(m.memory)))
		m.othersCount = w.r.IntN(8)
	case 4:
		if !m.online {
			m.online, m.provides = true, true
			w.say("%s joins", m.name)
		}
	}
}

// restart kills the daemon: at rest, or in the middle of a step, before or
// after its state was written.
func (w *world) restart() {
	if w.b.Done() && w.chance(70) {
		return
	}
	if w.plague != "" && !w.check.isStarting(w.plague) {
		if w.b.Done() {
			return
		}
		w.post(letter{at: 20 * time.Millisecond, do: w.restart})
		return
	}
	w.check.met["restart"]++
	w.restarted = true
	if w.chance(50) && w.plague == "" {
		if err := w.dieInStep(); err != nil {
			w.check.broken = err
			return
		}
	}
	w.forgetMail()
	var alive []batch.Alive
	local := w.machine(id.Local)
	for _, s := range local.adopt() {
		alive = append(alive, batch.Alive{Token: s.token, Index: s.index, ForkMS: 7})
	}
	w.say("the daemon starts again")
	if err := w.deliver(batch.Restarted{Alive: alive}); err != nil {
		w.check.broken = err
	}
}

// dieInStep takes the next message to the batch and dies while handling it.
func (w *world) dieInStep() error {
	at := -1
	for i, l := range w.queue {
		if l.ev != nil && l.from != nil && l.from.silentUntil <= w.now && l.epoch == l.from.epoch && (at < 0 || w.queue.Less(i, at)) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	l := w.queue[at]
	heap.Remove(&w.queue, at)
	w.now = max(w.now, l.at)
	if w.chance(50) { // before the state was written: as if it never came
		w.say("the daemon dies before it knows of %s", show(l.ev))
		w.check.met["restart lost a step"]++
		return nil
	}
	w.say("the daemon dies while it handles > %s", show(l.ev))
	now := epoch.Add(w.now)
	out := w.b.Step(now, l.ev)
	w.twin.Step(now, l.ev)
	if err := w.save(); err != nil {
		return err
	}
	if err := w.check.step(l.ev, out); err != nil {
		return err
	}
	done := w.r.IntN(len(out) + 1)
	for i, e := range out {
		if i < done {
			w.perform(e)
		} else {
			w.say("    not done: %s", show(e))
		}
	}
	return nil
}

// forgetMail drops what was on its way to the daemon that died, and what it
// was doing itself.
func (w *world) forgetMail() {
	var left letters
	for _, l := range w.queue {
		_, cancel := l.ev.(batch.Cancel)
		if l.do != nil && (l.from == nil || l.from.name != id.Local) || cancel {
			left = append(left, l)
		}
	}
	w.queue = left
	heap.Init(&w.queue)
}

// perform carries an effect to where it happens.
func (w *world) perform(e batch.Effect) {
	soon := w.upTo(w.latency)
	switch e := e.(type) {
	case batch.AskMachines:
		if w.chance(3) {
			return // lost: it asks again
		}
		if w.chance(20) { // an old picture
			list := w.snapshot(e)
			w.post(letter{at: w.upTo(time.Second), ev: batch.Machines{Ask: e.ID, List: list}})
			return
		}
		w.post(letter{at: w.upTo(200 * time.Millisecond), do: func() {
			w.post(letter{ev: batch.Machines{Ask: e.ID, List: w.snapshot(e)}})
		}})
	case batch.Reserve:
		w.at(e.Machine, soon, func(m *simMachine) { m.reserve(e) })
	case batch.Release:
		w.at(e.Machine, soon, func(m *simMachine) { m.release(e) })
	case batch.EnsureCheckpoint:
		w.at(e.Machine, soon, func(m *simMachine) { m.copy(e) })
	case batch.StopCopy:
		w.at(e.Machine, soon, func(m *simMachine) { m.copies[e.Copy] = "stopped" })
	case batch.StartFork:
		w.at(e.Machine, soon, func(m *simMachine) { m.start(e) })
		if w.faults > 0 && w.chance(2) { // the line breaks with the order on it
			w.machine(e.Machine).fallSilent()
		}
	case batch.RemoveFork:
		w.at(e.Machine, soon, func(m *simMachine) { m.remove(e) })
	}
}

// at does something on a machine. One that is gone refuses the connection.
func (w *world) at(name id.Machine, after time.Duration, do func(*simMachine)) {
	m := w.machine(name)
	if m == nil || !m.online {
		w.post(letter{at: after, ev: batch.MachineFailed{Machine: name, Error: "connection refused"}})
		return
	}
	w.post(letter{at: after, from: m, do: func() { do(m) }})
}

func (w *world) snapshot(ask batch.AskMachines) []roster.Machine {
	var out []roster.Machine
	for _, m := range w.machines {
		if m.silentUntil <= w.now && (ask.Only == "" || ask.Only == m.name) {
			out = append(out, m.shown())
		}
	}
	w.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
