package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/key"
)

// Run is one past run.
type Run struct {
	// ID is drawn by Record when it is empty.
	ID string
	// Workspace is its root, absolute.
	Workspace    string
	Platform     string // os/arch
	Command      []string
	Began, Ended time.Time
	Status       run.Status
	// Counts says how many tasks ended how.
	Counts map[run.Status]int
	Tasks  []Task `json:"-"`

	tasks []byte // Tasks as they are stored: JSON, packed or not
}

// Task is what became of a task in a run.
type Task struct {
	ID     id.Task    `json:"id"`
	Status run.Status `json:"status"`
	Key    run.Key    `json:"key,omitempty"`
	// Began and Ended are zero when the task never started.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Took and Usage are the last attempt's; of a restored task its producer's.
	Took     time.Duration `json:"took"`
	Usage    run.Usage     `json:"usage"`
	Exit     int           `json:"exit,omitempty"`
	Attempts int           `json:"attempts,omitempty"`
	// Unsaved says why a success was not stored.
	Unsaved string `json:"unsaved,omitempty"`
	// Parts are what the key was made of; nil leaves what is known of them.
	Parts *key.Parts `json:"-"`
}

// keptRuns is how many runs of a workspace are remembered.
const keptRuns = 200

// packedFrom is how much of tasks a journal takes as it is: packing takes longer
// than writing.
const packedFrom = 128 << 10

// packed packs tasks for the database, which is there to stay.
func packed(tasks []byte) []byte {
	if bytes.HasPrefix(tasks, []byte("\x28\xb5\x2f\xfd")) { // zstd's own beginning, which JSON has not
		return tasks
	}
	return packer.EncodeAll(tasks, nil)
}

// Tasks are like each other, so what repeats is near; a larger window would cost
// its size in memory.
const window = 256 << 10

var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
)

// Record adds a run. It draws the run's ID when there is none. A run that
// teaches nothing goes to the journal, every other one to the database.
func (h *History) Record(ctx context.Context, r *Run) error {
	if r.ID == "" {
		r.ID = id.Random(6)
	}
	if r.Counts == nil {
		r.Counts = map[run.Status]int{}
		for _, t := range r.Tasks {
			r.Counts[t.Status]++
		}
	}
	tasks, err := json.Marshal(r.Tasks)
	if err != nil {
		return err
	}
	r.tasks = tasks
	if len(tasks) > packedFrom {
		r.tasks = packer.EncodeAll(tasks, nil)
	}
	j := h.journal(r.Workspace, r.Platform)
	if h.exists() && !r.teaches() {
		full, err := j.record(ctx, r)
		if err != nil || !full {
			return h.failure(err, "record the run in the history")
		}
	}
	return h.whole(ctx, func() error { return h.failure(h.recordAfter(ctx, j, r), "record the run in the history") })
}

// teaches says that something ran: there are new figures.
func (r *Run) teaches() bool {
	return slices.ContainsFunc(r.Tasks, func(t Task) bool {
		s, ok := sampleOf(t)
		return ok && !s.hit
	})
}

// record adds a run to the journal, if it may.
func (j journal) record(ctx context.Context, r *Run) (full bool, err error) {
	b, err := encodeRun(r)
	if err != nil {
		return false, err
	}
	unlock, err := j.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	return j.add(fingerprint(r), b)
}

// recordAfter adds a run to the database, after those of its journal, and
// begins the journal anew. Between its head and the database nothing may
// differ: the head is given up first.
func (h *History) recordAfter(ctx context.Context, j journal, r *Run) error {
	unlock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before, _, err := j.runs()
	if err != nil {
		return err
	}
	if err := j.distrust(); err != nil {
		return err
	}
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for i := range before {
		if err := insert(ctx, tx, &before[i]); err != nil {
			return err
		}
	}
	print := fingerprint(r)
	if err := teach(ctx, tx, r, print); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	known, err := h.figures(ctx, r.Workspace, r.Platform)
	if err != nil {
		return err
	}
	return j.begin(head{print: print, figures: known})
}

// teach adds a run, and what is to learn from it.
func teach(ctx context.Context, tx *sql.Tx, r *Run, print []byte) error {
	if err := insert(ctx, tx, r); err != nil {
		return err
	}
	w := recorder{ctx: ctx, tx: tx, run: r}
	var old []byte
	var err error
	if w.workspace, old, err = workspace(ctx, tx, r.Workspace); err != nil {
		return err
	}
	same := slices.Equal(print, old)
	if err = errors.Join(w.samples(same), w.keys(same), w.prune()); err != nil || same {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE workspaces SET print = ? WHERE id = ?", print, w.workspace)
	return err
}

// insert adds a run's row; a run that is there stays as it is, for what a
// crash left in a journal may come twice.
func insert(ctx context.Context, tx *sql.Tx, r *Run) error {
	n, _, err := workspace(ctx, tx, r.Workspace)
	if err != nil {
		return err
	}
	command, err := json.Marshal(r.Command)
	if err != nil {
		return err
	}
	counts, err := json.Marshal(r.Counts)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO runs VALUES (?,?,?,?,?,?,?,?,?)", r.ID, n, r.Began.UnixNano(), r.Ended.UnixNano(),
		r.Platform, string(command), string(r.Status), string(counts), packed(r.tasks))
	return err
}

// fingerprint is equal for runs of the same tasks with the same keys: there is
// nothing new to learn from their hits.
func fingerprint(r *Run) []byte {
	lines := make([]string, 0, len(r.Tasks))
	for _, t := range r.Tasks {
		lines = append(lines, string(t.ID)+"\x00"+string(t.Key))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(r.Platform + "\x01" + strings.Join(lines, "\x01")))
	return sum[:16]
}

type recorder struct {
	ctx       context.Context
	tx        *sql.Tx
	run       *Run
	workspace int64
}

// samples adds what the tasks took. Of restored ones the figures are added
// once for each key; same says that this was done.
func (w *recorder) samples(same bool) error {
	get, err := w.tx.PrepareContext(w.ctx, "SELECT data FROM samples WHERE workspace = ? AND platform = ? AND task = ?")
	if err != nil {
		return err
	}
	defer get.Close()
	put, err := w.tx.PrepareContext(w.ctx, "INSERT OR REPLACE INTO samples VALUES (?,?,?,?)")
	if err != nil {
		return err
	}
	defer put.Close()
	sum, err := w.tx.PrepareContext(w.ctx, "INSERT OR REPLACE INTO figures VALUES (?,?,?,?,?,?,?,?,?,?,?)")
	if err != nil {
		return err
	}
	defer sum.Close()
	for _, t := range w.run.Tasks {
		s, ok := sampleOf(t)
		if !ok || s.hit && same {
			continue
		}
		var data []byte
		if err := get.QueryRowContext(w.ctx, w.workspace, w.run.Platform, string(t.ID)).Scan(&data); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		all := decodeSamples(data)
		if s.hit && slices.ContainsFunc(all, func(o sample) bool { return o.key == s.key && !o.failed }) {
			continue
		}
		all = append(all, s)
		all = all[max(0, len(all)-kept):]
		if _, err := put.ExecContext(w.ctx, w.workspace, w.run.Platform, string(t.ID), encodeSamples(all)); err != nil {
			return err
		}
		f := figures(all)
		if _, err := sum.ExecContext(w.ctx, w.workspace, w.run.Platform, string(t.ID), f.Runs, int64(f.Wall), int64(f.Wall90), int64(f.CPU),
			f.PeakMemory, f.Sampled, f.Flaky, f.Failures); err != nil {
			return err
		}
	}
	return nil
}

func sampleOf(t Task) (sample, bool) {
	s := sample{wall: t.Took, cpu: t.Usage.CPU, peak: t.Usage.PeakMemory, sampled: t.Usage.Sampled, key: prefix(t.Key)}
	if !t.Began.IsZero() {
		s.began = t.Began.Unix()
	}
	switch t.Status {
	case run.Success:
		s.retried = t.Attempts > 1
	case run.Failed:
		s.failed = true
	case run.Cached:
		s.hit = true
		return s, t.Took > 0
	case run.Waiting, run.Ready, run.Running, run.Skipped, run.Aborted:
		return s, false
	}
	return s, true
}

// keys remembers the parts of keys that are new.
func (w *recorder) keys(same bool) error {
	if same {
		return nil
	}
	last, err := w.lastKeys()
	if err != nil {
		return err
	}
	put, err := w.tx.PrepareContext(w.ctx, "INSERT OR REPLACE INTO keys VALUES (?,?,?,?)")
	if err != nil {
		return err
	}
	defer put.Close()
	group, err := w.tx.PrepareContext(w.ctx, "INSERT OR IGNORE INTO groups VALUES (?,?)")
	if err != nil {
		return err
	}
	defer group.Close()
	get, err := w.tx.PrepareContext(w.ctx, "SELECT data FROM keys WHERE workspace = ? AND task = ?")
	if err != nil {
		return err
	}
	defer get.Close()
	stored := map[string]bool{}
	for _, t := range w.run.Tasks {
		k, _ := hex.DecodeString(string(t.Key)) // a task without key has none
		if t.Parts == nil || len(k) == 0 || last[t.ID] == string(k) {
			continue
		}
		var data []byte
		err := get.QueryRowContext(w.ctx, w.workspace, string(t.ID)).Scan(&data)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		known := append([]keyRecord{newKeyRecord(t, w.run)}, decodeKeys(data)...)
		known = slices.Insert(slices.DeleteFunc(known[1:], func(r keyRecord) bool { return r.key == known[0].key }), 0, known[0])
		if _, err := put.ExecContext(w.ctx, w.workspace, string(t.ID), k, encodeKeys(known[:min(len(known), keptKeys)])); err != nil {
			return err
		}
		for _, g := range t.Parts.Groups {
			if stored[string(g.Sum)] {
				continue
			}
			stored[string(g.Sum)] = true
			sum, _ := hex.DecodeString(string(g.Sum)) // a digest
			if _, err := group.ExecContext(w.ctx, sum, packGroup(g.Encode())); err != nil {
				return err
			}
		}
	}
	return nil
}

// A stored group begins with one of these; small ones are not packed.
const (
	rawGroup    = 'r'
	packedGroup = 'z'
)

func packGroup(b []byte) []byte {
	if len(b) < 512 {
		return append([]byte{rawGroup}, b...)
	}
	return packer.EncodeAll(b, []byte{packedGroup})
}

func unpackGroup(b []byte) ([]byte, error) {
	switch {
	case len(b) > 0 && b[0] == rawGroup:
		return b[1:], nil
	case len(b) > 0 && b[0] == packedGroup:
		return unpacker.DecodeAll(b[1:], nil)
	}
	return nil, errs.New(errs.DataLoss, "a group of a key's parts is damaged")
}

func (w *recorder) lastKeys() (map[id.Task]string, error) {
	rows, err := w.tx.QueryContext(w.ctx, "SELECT task, last FROM keys WHERE workspace = ?", w.workspace)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	last := map[id.Task]string{}
	for rows.Next() {
		var task string
		var k []byte
		if err := rows.Scan(&task, &k); err != nil {
			return nil, err
		}
		last[id.Task(task)] = string(k)
	}
	return last, rows.Err()
}

// prune forgets old runs, and now and then the groups that no key has any more.
func (w *recorder) prune() error {
	r, err := forget(w.ctx, w.tx, w.workspace)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 || w.run.Began.UnixNano()%64 != 0 {
		return err
	}
	return w.pruneGroups()
}

func forget(ctx context.Context, tx *sql.Tx, workspace int64) (sql.Result, error) {
	return tx.ExecContext(ctx, `DELETE FROM runs WHERE workspace = ? AND began <
		(SELECT began FROM runs WHERE workspace = ? ORDER BY began DESC LIMIT 1 OFFSET ?)`, workspace, workspace, keptRuns-1)
}

func (w *recorder) pruneGroups() error {
	used := map[string]bool{}
	rows, err := w.tx.QueryContext(w.ctx, "SELECT data FROM keys")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return err
		}
		for _, k := range decodeKeys(data) {
			for _, g := range k.groups {
				used[string(g[:])] = true
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	sums, err := w.tx.QueryContext(w.ctx, "SELECT sum FROM groups")
	if err != nil {
		return err
	}
	defer sums.Close()
	var drop [][]byte
	for sums.Next() {
		var sum []byte
		if err := sums.Scan(&sum); err != nil {
			return err
		}
		if !used[string(sum)] {
			drop = append(drop, sum)
		}
	}
	if err := errors.Join(sums.Err(), sums.Close()); err != nil {
		return err
	}
	for _, sum := range drop {
		if _, err := w.tx.ExecContext(w.ctx, "DELETE FROM groups WHERE sum = ?", sum); err != nil {
			return err
		}
	}
	return nil
}
