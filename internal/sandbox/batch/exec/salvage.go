package exec

import (
	"os"
	"time"

	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox/batch"
)

// salvage makes books for a batch whose own cannot be read: of its forks that
// are here, which know whose they are. It is over, since nobody knows what was
// asked for. One without forks is dropped.
func (m *Manager) salvage(name id.Batch, why error) error {
	rec := record{
		Info: Info{ID: name, Note: "its books were damaged: these are its forks that were still there", Damaged: true, DoneAt: time.Now()},
		Rand: make([]byte, 32), Rules: batch.Rules,
	}
	for _, sb := range m.p.Host.List() {
		o := sb.Origin
		if o == nil || o.Batch != name {
			continue
		}
		if rec.CreatedAt.IsZero() || sb.CreatedAt.Before(rec.CreatedAt) {
			rec.CreatedAt = sb.CreatedAt
		}
		rec.Request.Source = string(o.Checkpoint)
		rec.Records = append(rec.Records, batch.Record{Seq: uint64(len(rec.Records) + 1), Item: &batch.Item{
			Index: uint32(o.Index), Source: string(o.Checkpoint), Name: sb.Name, Host: id.Local, Space: "local:" + string(sb.Name), Attempt: 1,
		}})
	}
	rec.Total = len(rec.Records)
	if rec.Total == 0 {
		m.p.Log.Warn("a batch's books are damaged and dropped", "batch", name, "error", why)
		return os.RemoveAll(m.dir(name))
	}
	m.p.Log.Error("a batch's books are damaged; those of its forks that are here are kept", "batch", name, "forks", rec.Total, "error", why)
	rec.Request.Count = uint32(rec.Total)
	n := uint32(rec.Total)
	rec.Summary = &batch.Summary{OK: n, PerHost: map[id.Machine]uint32{id.Local: n}, PeakParallel: map[id.Machine]uint32{}}
	rec.Records = append(rec.Records, batch.Record{Seq: uint64(rec.Total + 1), Done: rec.Summary})
	if err := os.Remove(m.journal(name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := schema.Write(m.record(name), rec, home.Durable); err != nil {
		return err
	}
	m.reopened(rec)
	return nil
}
