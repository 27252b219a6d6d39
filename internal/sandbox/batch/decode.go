package batch

import (
	"encoding/json"
	"fmt"
	"slices"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// maxID leaves room to count on from any state that is read.
const maxID EffectID = 1 << 62

// UnmarshalJSON is Decode, for a batch inside another record.
func (b *Batch) UnmarshalJSON(data []byte) error {
	d, err := Decode(data)
	if err != nil {
		return err
	}
	*b = *d
	return nil
}

// Decode reads a state that MarshalJSON wrote. A state of a newer format is
// Unsupported; one that contradicts itself is DataLoss.
func Decode(data []byte) (*Batch, error) {
	var s stored
	err := json.Unmarshal(data, &s)
	if err != nil { // perhaps only because it is of another format
		var version struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(data, &version) != nil {
			return nil, errs.New(errs.DataLoss, "batch state is not readable: %w", err)
		}
		s.Format = version.Format
	}
	switch {
	case s.Format != stateFormat:
		return nil, errs.New(errs.Unsupported, "batch state has format %d, this brood reads %d: use the brood that wrote it, or a newer one", s.Format, stateFormat)
	case err != nil:
		return nil, errs.New(errs.DataLoss, "batch state is not readable: %w", err)
	}
	b, err := s.batch()
	if err != nil {
		return nil, errs.New(errs.DataLoss, "batch state of %.80q contradicts itself: %w", s.ID, err)
	}
	return b, nil
}

// batch rebuilds a Batch, deriving what is not written, and checks that every
// fork has exactly one place.
func (s *stored) batch() (*Batch, error) {
	b := empty()
	b.id, b.req, b.target = s.ID, s.Request, s.Target
	b.start, b.now, b.nextID, b.seq = s.Start, s.Now, s.NextID, s.Seq
	b.cancelled, b.done, b.asked, b.askedAt, b.round = s.Cancelled, s.Done, s.Asked, s.AskedAt, s.Round
	if err := Validate(b.req); err != nil {
		return nil, err
	}
	b.where, _ = ParseOn(b.req.On)
	switch {
	case b.start < 0 || b.now < b.start:
		return nil, fmt.Errorf("times %d and %d", b.start, b.now)
	case b.nextID == 0 || b.nextID > maxID || b.asked >= b.nextID:
		return nil, fmt.Errorf("next id %d", b.nextID)
	case b.target == "":
		return nil, fmt.Errorf("no target")
	}
	if err := s.groups(b); err != nil {
		return nil, err
	}
	for _, read := range []func(*Batch) error{s.readForks, s.readMachines, s.readCopies, s.readParts, s.readRest, check} {
		if err := read(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (s *stored) groups(b *Batch) error {
	groups := expand(b.req)
	prefix := make([]string, len(groups))
	for i, g := range groups {
		prefix[i] = g.NamePrefix
		if prefix[i] == "" {
			prefix[i] = s.Drawn[g.Source]
		}
	}
	if err := b.setGroups(groups, s.Sources, prefix); err != nil {
		return err
	}
	for i := range b.groups {
		g := &b.groups[i]
		if _, err := id.ParseName("fork", string(g.name(g.count-1))); err != nil {
			return err
		}
	}
	return nil
}

func (s *stored) readForks(b *Batch) error {
	if len(s.Forks) != len(b.forks) {
		return fmt.Errorf("%d forks, %d requested", len(s.Forks), len(b.forks))
	}
	tokens := s.Tokens
	for i := range b.forks {
		f := &b.forks[i]
		f.state = forkState(s.Forks[i])
		switch f.state {
		case open:
		case starting, ready:
			if len(tokens) == 0 || tokens[0] == 0 || tokens[0] >= b.nextID {
				return fmt.Errorf("fork %d has no valid token", i)
			}
			f.token, tokens = tokens[0], tokens[1:]
			if f.state == ready {
				b.ok++
			}
		case ended:
			b.failed++
		default:
			return fmt.Errorf("fork %d has state %q", i, s.Forks[i])
		}
	}
	if len(tokens) > 0 {
		return fmt.Errorf("%d tokens too many", len(tokens))
	}
	for i, n := range s.Lost {
		if i < 0 || i >= len(b.forks) || n < 0 || n > MaxForks {
			return fmt.Errorf("fork %d lost %d times", i, n)
		}
		b.lost[i] = n
	}
	return nil
}

func (s *stored) readMachines(b *Batch) error {
	left := b.ok
	for _, r := range s.Machines {
		if r.Name == "" || b.machines[r.Name] != nil {
			return fmt.Errorf("machine %.80q twice, or without a name", r.Name)
		}
		left -= r.Ready
		if r.Ready < 0 || left < 0 || r.Peak < 0 || r.Peak > MaxForks || r.Limit < 0 || r.ReadyMemory > MaxForks*maxMemoryMiB {
			return fmt.Errorf("machine %.80q: %d forks ready, %d at once", r.Name, r.Ready, r.Peak)
		}
		b.machines[r.Name] = &machine{
			name: r.Name, ready: r.Ready, readyMemory: r.ReadyMemory, own: r.Ready, ownMemory: r.ReadyMemory, peak: r.Peak, limit: r.Limit, heard: r.Heard,
			total: r.Total, free: r.Free, owed: min(r.Owed, MaxForks*maxMemoryMiB), stale: r.Stale, copied: r.Copied, synced: r.Synced,
		}
	}
	if left != 0 {
		return fmt.Errorf("%d ready forks are on no machine", left)
	}
	return nil
}

func (s *stored) readCopies(b *Batch) error {
	var last EffectID
	for _, r := range s.Copies {
		m := b.machines[r.Machine]
		if m == nil || r.Source < 0 || r.Source >= len(b.sources) || r.ID <= last || r.ID >= b.nextID {
			return fmt.Errorf("copy %d to %.80q", r.ID, r.Machine)
		}
		last = r.ID
		t := &transfer{id: r.ID, source: r.Source, machine: m, shown: r.Shown, last: SyncProgress{
			Copy: r.ID, Machine: r.Machine, From: r.From, BytesDone: r.Done, BytesTotal: r.Total, BytesReused: r.Reused}}
		b.copies[t.id] = t
		m.copies = append(m.copies, t)
	}
	return nil
}

func (s *stored) readParts(b *Batch) error {
	var last EffectID
	for i := range s.Parts {
		r := &s.Parts[i]
		if r.ID <= last || r.ID >= b.nextID || r.Group < 0 || r.Group >= len(b.groups) || r.Attempt < 1 || r.Attempt > 2*MaxForks || len(r.State) != 1 {
			return fmt.Errorf("part %d", r.ID)
		}
		last = r.ID
		p := &part{
			id: r.ID, group: r.Group, attempt: r.Attempt, state: partState(r.State[0]), machine: r.Machine, grant: r.Grant, tried: r.Tried,
			cause: failure{r.Code, r.Cause}, reason: r.Reason, needsSync: r.NeedsSync, announced: r.Announced,
		}
		var err error
		if p.open, err = b.claim(p, r.Open, open); err != nil {
			return err
		}
		if p.active, err = b.claim(p, r.Active, starting); err != nil {
			return err
		}
		if err := b.settlePart(p); err != nil {
			return err
		}
	}
	return nil
}

// claim reads spans of forks that belong to a part and are in the given state.
func (b *Batch) claim(p *part, list []span, want forkState) ([]int, error) {
	g := &b.groups[p.group]
	var out []int
	next := g.first
	for _, s := range list {
		if s[0] < next || s[1] < 1 || s[1] > g.count || s[0]+s[1] > g.first+g.count {
			return nil, fmt.Errorf("part %d has forks %v, its group has %d from %d", p.id, s, g.count, g.first)
		}
		for i := s[0]; i < s[0]+s[1]; i++ {
			if b.forks[i].state != want || b.forks[i].part != nil {
				return nil, fmt.Errorf("fork %d is in part %d and elsewhere", i, p.id)
			}
			b.forks[i].part = p
			out = append(out, i)
		}
		next = s[0] + s[1]
	}
	return out, nil
}

// settlePart puts a part that was read where its state says.
func (b *Batch) settlePart(p *part) error {
	bad := fmt.Errorf("part %d on %.80q is in state %q with %d open and %d starting forks", p.id, p.machine, p.state, len(p.open), len(p.active))
	count := len(p.open) + len(p.active)
	m := b.machines[p.machine]
	if count == 0 || (p.state == unplaced) != (m == nil) || p.state != startable && len(p.active) > 0 {
		return bad
	}
	b.parts[p.id] = p
	if p.state == unplaced {
		b.pending = append(b.pending, p)
		return nil
	}
	if p.grant == 0 || p.grant >= b.nextID || b.grants[p.grant] != nil {
		return bad
	}
	switch p.state {
	case reserving:
		b.grants[p.grant] = p
	case copying:
		if !slices.ContainsFunc(m.copies, func(t *transfer) bool { return b.sources[t.source].Digest == b.digestOf(p) }) {
			return bad
		}
	case startable:
	default:
		return bad
	}
	_, memory := b.counted(b.groups[p.group].source)
	m.parts = append(m.parts, p)
	m.starting += len(p.active)
	m.own += count
	m.ownMemory += uint64(count) * memory
	return nil
}

func (s *stored) readRest(b *Batch) error {
	for _, g := range s.Abandoned {
		if g.Grant == 0 || g.Grant >= b.nextID {
			return fmt.Errorf("abandoned grant %d", g.Grant)
		}
		b.abandoned[g.Grant] = g.Machine
	}
	for _, r := range s.Removals {
		if r.Index < 0 || r.Index >= len(b.forks) || r.Token == 0 || r.Machine == "" {
			return fmt.Errorf("removal %d of fork %d", r.Token, r.Index)
		}
		b.removals[r.Token] = removal{r.Machine, r.Index, r.Why}
	}
	return nil
}

// check sees that no fork is without a part that needs one.
func check(b *Batch) error {
	for i, f := range b.forks {
		if (f.state == open || f.state == starting) && f.part == nil {
			return fmt.Errorf("fork %d is open and in no part", i)
		}
	}
	if b.done && b.ok+b.failed != len(b.forks) {
		return fmt.Errorf("done with %d of %d forks", b.ok+b.failed, len(b.forks))
	}
	return nil
}
