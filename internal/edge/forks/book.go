package forks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

// maxFailures is how many failures are listed at the end.
const maxFailures = 20

// book keeps what a person wants to know of a batch.
type book struct {
	id       string
	total    uint32
	job      *job
	order    []string // machines as they came
	machines map[string]*machine
	copies   map[string]*client.SnapshotSyncProgress // running ones, by machine and digest
	told     map[string]uint64                       // quarter of a copy that had a line
	synced   map[string]bool                         // machine and group that were copied to first
	times    []uint64                                // fork_ms of ready forks
	slowest  *client.ForkBatchItem
	ready    uint32
	failures []*client.ForkBatchItem
	done     *client.ForkBatchSummary

	ranOK, ranFailed int
}

type machine struct{ placed, ready, failed uint32 }

func newBook(id string, total uint32, j *job) *book {
	return &book{
		id: id, total: total, job: j, machines: map[string]*machine{}, copies: map[string]*client.SnapshotSyncProgress{},
		told: map[string]uint64{}, synced: map[string]bool{},
	}
}

func (b *book) machine(name string) *machine {
	m, ok := b.machines[name]
	if !ok {
		m = &machine{}
		b.machines[name] = m
		b.order = append(b.order, name)
	}
	return m
}

// note writes an event down.
func (b *book) note(e *client.Event) {
	switch {
	case e.Placement != nil:
		b.machine(e.Placement.GetHost()).placed += e.Placement.GetCount()
		if e.Placement.GetNeedsSync() {
			b.synced[groupOn(e.Placement.GetHost(), e.Placement.GetGroup())] = true
		}
	case e.Sync != nil:
		key := e.Sync.GetTo() + "/" + e.Sync.GetDigest()
		b.copies[key] = e.Sync
		if e.Sync.GetDone() {
			delete(b.copies, key)
		}
	case e.Item != nil:
		b.item(e.Item)
	case e.Done != nil:
		b.done = e.Done
	}
}

func (b *book) item(i *client.ForkBatchItem) {
	if failedItem(i) {
		b.failures = append(b.failures, i)
		if i.GetHost() != "" {
			b.machine(i.GetHost()).failed++
		}
		return
	}
	b.ready++
	b.machine(i.GetHost()).ready++
	b.times = append(b.times, i.GetForkMs())
	if b.slowest == nil || i.GetForkMs() > b.slowest.GetForkMs() {
		b.slowest = i
	}
}

func (b *book) ran(o *outcome) {
	if o.failed() {
		b.ranFailed++
		return
	}
	b.ranOK++
}

func groupOn(host string, group uint32) string { return fmt.Sprintf("%s/%d", host, group) }

// worthALine reports whether a copy has come far enough for another line.
func (b *book) worthALine(p *client.SnapshotSyncProgress) bool {
	key := p.GetTo() + "/" + p.GetDigest()
	quarter := uint64(1)
	if p.GetBytesTotal() > 0 {
		quarter += 4 * p.GetBytesDone() / p.GetBytesTotal()
	}
	if p.GetDone() {
		delete(b.told, key)
		return true
	}
	worth := quarter > b.told[key]
	b.told[key] = max(quarter, b.told[key])
	return worth
}

func copyText(p *client.SnapshotSyncProgress) string {
	s := fmt.Sprintf("%s from %s to %s: %s of %s", cli.OrDash(p.GetName()), cli.OrDash(p.GetFrom()), cli.OrDash(p.GetTo()), home.Bytes(p.GetBytesDone()), home.Bytes(p.GetBytesTotal()))
	if p.GetBytesReused() > 0 {
		s += fmt.Sprintf(", %s were there", home.Bytes(p.GetBytesReused()))
	}
	if p.GetDone() {
		s += ", done"
		if p.GetVerified() {
			s += " and verified"
		}
	}
	return s
}

// slowestText says which fork took longest, and why as far as is known.
func (b *book) slowestText() string {
	i := b.slowest
	if i == nil {
		return ""
	}
	sorted := slices.Sorted(slices.Values(b.times))
	s := fmt.Sprintf("slowest %s on %s: %s (median %s)", i.GetName(), i.GetHost(), cli.Took(i.GetForkMs()), cli.Took(sorted[len(sorted)/2]))
	waited := uint64(0)
	if i.GetElapsedMs() > i.GetForkMs() {
		waited = i.GetElapsedMs() - i.GetForkMs()
	}
	switch {
	case i.GetAttempt() > 1:
		s += fmt.Sprintf(", after %s: it was placed %d times", cli.Took(waited), i.GetAttempt())
	case b.synced[groupOn(i.GetHost(), i.GetGroup())]:
		s += fmt.Sprintf(", after %s: its checkpoint was copied first", cli.Took(waited))
	case waited > i.GetForkMs():
		s += fmt.Sprintf(", after %s waiting for its turn", cli.Took(waited))
	}
	return s
}

// failed lists what failed.
func (b *book) failed(p cli.Palette) []string {
	var lines []string
	for n, i := range b.failures {
		if n == maxFailures {
			lines = append(lines, p.Faint(fmt.Sprintf("and %d more: brood batch info %s", len(b.failures)-n, b.id)))
			break
		}
		lines = append(lines, itemText(p, i))
	}
	return lines
}

// closing are the lines at the end: the slowest, the sum.
func (b *book) closing(p cli.Palette) []string {
	if b.done == nil {
		return nil
	}
	var lines []string
	if s := b.slowestText(); s != "" && len(b.times) > 1 {
		lines = append(lines, p.Faint(s))
	}
	sum := p.Good(fmt.Sprintf("%d ready", b.done.GetOk()))
	if n := b.done.GetFailed(); n > 0 {
		sum += ", " + p.Bad(fmt.Sprintf("%d failed", n))
	}
	sum += fmt.Sprintf(" in %s, batch %s", cli.Took(b.done.GetElapsedMs()), b.id)
	if hosts := b.done.GetPerHost(); len(hosts) > 1 {
		var parts []string
		for _, h := range slices.Sorted(maps.Keys(hosts)) {
			parts = append(parts, fmt.Sprintf("%s %d", h, hosts[h]))
		}
		sum += " (" + strings.Join(parts, ", ") + ")"
	}
	if b.job != nil {
		sum += fmt.Sprintf("; the command ended well in %d of %d", b.ranOK, b.ranOK+b.ranFailed)
	}
	return append(lines, sum)
}
