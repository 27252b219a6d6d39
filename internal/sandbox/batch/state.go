package batch

import (
	"encoding/json"
	"maps"
	"slices"

	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// stateFormat is the version of the written state. Older ones are migrated by
// Decode, newer ones refused.
const stateFormat = 1

// stored is the written form of a Batch. What can be derived is not in it.
type stored struct {
	Format    int               `json:"format"`
	ID        id.Batch          `json:"id"`
	Request   Request           `json:"request"`
	Target    id.Machine        `json:"target"`
	Sources   []Source          `json:"sources"`
	Drawn     map[string]string `json:"drawn,omitempty"` // source → its drawn prefix
	Start     int64             `json:"start_ns"`
	Now       int64             `json:"now_ns"`
	NextID    EffectID          `json:"next_id"`
	Seq       uint64            `json:"seq"`
	Cancelled bool              `json:"cancelled,omitempty"`
	Done      bool              `json:"done,omitempty"`
	Asked     EffectID          `json:"asked,omitempty"`
	AskedAt   int64             `json:"asked_ns,omitempty"`
	Round     EffectID          `json:"round,omitempty"`

	Forks  string      `json:"forks"`            // one letter each
	Tokens []EffectID  `json:"tokens,omitempty"` // of those starting or ready, in order
	Lost   map[int]int `json:"lost,omitempty"`

	Parts     []storedPart    `json:"parts,omitempty"`
	Machines  []storedMachine `json:"machines,omitempty"`
	Copies    []storedCopy    `json:"copies,omitempty"`
	Abandoned []storedGrant   `json:"abandoned,omitempty"`
	Removals  []storedRemoval `json:"removals,omitempty"`
}

type storedPart struct {
	ID        EffectID     `json:"id"`
	Group     int          `json:"group"`
	Attempt   int          `json:"attempt"`
	State     string       `json:"state"`
	Machine   id.Machine   `json:"machine,omitempty"`
	Grant     EffectID     `json:"grant,omitempty"`
	Open      []span       `json:"open,omitempty"`
	Active    []span       `json:"active,omitempty"`
	Tried     []id.Machine `json:"tried,omitempty"`
	Code      ErrorCode    `json:"code,omitempty"`
	Cause     string       `json:"cause,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	NeedsSync bool         `json:"needs_sync,omitempty"`
	Announced bool         `json:"announced,omitempty"`
}

// span is the first of a run of indexes, and how many there are.
type span [2]int

type storedMachine struct {
	Name        id.Machine      `json:"name"`
	Ready       int             `json:"ready,omitempty"`
	ReadyMemory uint64          `json:"ready_memory_mib,omitempty"`
	Peak        int             `json:"peak,omitempty"`
	Limit       int             `json:"limit,omitempty"`
	Heard       int64           `json:"heard_ns,omitempty"`
	Total       uint64          `json:"total_mib,omitempty"`
	Free        uint64          `json:"free_mib,omitempty"`
	Owed        uint64          `json:"owed_mib,omitempty"`
	Stale       bool            `json:"stale,omitempty"`
	Copied      []digest.Digest `json:"copied,omitempty"`
	Synced      []digest.Digest `json:"synced,omitempty"`
}

type storedCopy struct {
	ID      EffectID   `json:"id"`
	Source  int        `json:"source"`
	Machine id.Machine `json:"machine"`
	Shown   int64      `json:"shown_ns,omitempty"`
	From    string     `json:"from,omitempty"`
	Done    uint64     `json:"bytes_done,omitempty"`
	Total   uint64     `json:"bytes_total,omitempty"`
	Reused  uint64     `json:"bytes_reused,omitempty"`
}

type storedGrant struct {
	Grant   EffectID   `json:"grant"`
	Machine id.Machine `json:"machine"`
}

type storedRemoval struct {
	Token   EffectID   `json:"token"`
	Machine id.Machine `json:"machine"`
	Index   int        `json:"index"`
	Why     string     `json:"why"`
}

// MarshalJSON writes the whole state. It may be called after any Step; what
// Decode makes of it goes on exactly as b does.
func (b *Batch) MarshalJSON() ([]byte, error) {
	s := stored{
		Format: stateFormat, ID: b.id, Request: b.req, Target: b.target, Sources: b.sources, Drawn: b.drawn(),
		Start: b.start, Now: b.now, NextID: b.nextID, Seq: b.seq, Cancelled: b.cancelled, Done: b.done,
		Asked: b.asked, AskedAt: b.askedAt, Round: b.round, Lost: b.lost,
	}
	letters := make([]byte, len(b.forks))
	for i, f := range b.forks {
		letters[i] = byte(f.state)
		if f.state == starting || f.state == ready {
			s.Tokens = append(s.Tokens, f.token)
		}
	}
	s.Forks = string(letters)
	for _, pid := range slices.Sorted(maps.Keys(b.parts)) {
		s.Parts = append(s.Parts, b.parts[pid].stored())
	}
	for _, name := range b.machineNames() {
		s.Machines = append(s.Machines, b.machines[name].stored())
	}
	for _, cid := range slices.Sorted(maps.Keys(b.copies)) {
		t := b.copies[cid]
		s.Copies = append(s.Copies, storedCopy{ID: cid, Source: t.source, Machine: t.machine.name, Shown: t.shown,
			From: t.last.From, Done: t.last.BytesDone, Total: t.last.BytesTotal, Reused: t.last.BytesReused})
	}
	for _, g := range slices.Sorted(maps.Keys(b.abandoned)) {
		s.Abandoned = append(s.Abandoned, storedGrant{g, b.abandoned[g]})
	}
	for _, t := range slices.Sorted(maps.Keys(b.removals)) {
		r := b.removals[t]
		s.Removals = append(s.Removals, storedRemoval{t, r.machine, r.index, r.why})
	}
	return json.Marshal(s)
}

// drawn returns the prefixes that were drawn, by source.
func (b *Batch) drawn() map[string]string {
	out := map[string]string{}
	for i, g := range expand(b.req) {
		if g.NamePrefix == "" {
			out[g.Source] = b.groups[i].prefix
		}
	}
	return out
}

func (p *part) stored() storedPart {
	return storedPart{
		ID: p.id, Group: p.group, Attempt: p.attempt, State: string(p.state), Machine: p.machine, Grant: p.grant,
		Open: spans(p.open), Active: spans(p.active), Tried: p.tried, Code: p.cause.code, Cause: p.cause.text,
		Reason: p.reason, NeedsSync: p.needsSync, Announced: p.announced,
	}
}

func (m *machine) stored() storedMachine {
	return storedMachine{
		Name: m.name, Ready: m.ready, ReadyMemory: m.readyMemory, Peak: m.peak, Limit: m.limit, Heard: m.heard, Total: m.total, Free: m.free,
		Owed: m.owed, Stale: m.stale, Copied: m.copied, Synced: m.synced,
	}
}

func spans(list []int) []span {
	var out []span
	for _, i := range list {
		if n := len(out); n > 0 && out[n-1][0]+out[n-1][1] == i {
			out[n-1][1]++
			continue
		}
		out = append(out, span{i, 1})
	}
	return out
}
