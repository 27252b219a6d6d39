package history

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/key"
)

// Figures returns what is known of all tasks of a workspace on a platform.
func (h *History) Figures(ctx context.Context, root, platform string) (all map[id.Task]Figures, err error) {
	if known, ok := h.journal(root, platform).head(); ok && h.exists() {
		return known.figures, nil
	}
	err = h.whole(ctx, func() error { all, err = h.figures(ctx, root, platform); return err })
	return all, err
}

func (h *History) figures(ctx context.Context, root, platform string) (map[id.Task]Figures, error) {
	rows, err := h.db.QueryContext(ctx, `SELECT task, runs, wall, wall90, cpu, peak, sampled, flaky, failures
		FROM figures WHERE platform = ? AND workspace = (SELECT id FROM workspaces WHERE root = ?)`, platform, root)
	if err != nil {
		return nil, h.failure(err, "read the history")
	}
	defer rows.Close()
	all := map[id.Task]Figures{}
	for rows.Next() {
		var task string
		var f Figures
		if err := rows.Scan(&task, &f.Runs, &f.Wall, &f.Wall90, &f.CPU, &f.PeakMemory, &f.Sampled, &f.Flaky, &f.Failures); err != nil {
			return nil, h.failure(err, "read the history")
		}
		all[id.Task(task)] = f
	}
	return all, h.failure(rows.Err(), "read the history")
}

// Known is a key that a task had in a past run.
type Known struct {
	Parts  *key.Parts
	Run    string
	When   time.Time
	Status run.Status
}

// Keys returns the last different keys of a task with their parts, newest
// first: what it takes to say why a task ran, or would.
func (h *History) Keys(ctx context.Context, root string, task id.Task) (all []Known, err error) {
	err = h.whole(ctx, func() error { all, err = h.keys(ctx, root, task); return err })
	return all, err
}

func (h *History) keys(ctx context.Context, root string, task id.Task) ([]Known, error) {
	var data []byte
	err := h.db.QueryRowContext(ctx, "SELECT data FROM keys WHERE task = ? AND workspace = (SELECT id FROM workspaces WHERE root = ?)",
		string(task), root).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, h.failure(err, "read the history")
	}
	var all []Known
	for _, k := range decodeKeys(data) {
		p := &key.Parts{Key: run.Key(hex.EncodeToString(k.key[:]))}
		for _, sum := range k.groups {
			g, err := h.group(ctx, sum[:])
			if err != nil {
				return nil, err
			}
			if g != nil {
				p.Groups = append(p.Groups, g)
			}
		}
		all = append(all, Known{Parts: p, Run: k.run, When: k.when(), Status: k.status})
	}
	return all, nil
}

func (h *History) group(ctx context.Context, sum []byte) (*key.Group, error) {
	var data []byte
	err := h.db.QueryRowContext(ctx, "SELECT data FROM groups WHERE sum = ?", sum).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, h.failure(err, "read the history")
	}
	b, err := unpackGroup(data)
	if err != nil {
		return nil, nil //nolint:nilerr // what is damaged is not known
	}
	g, err := key.DecodeGroup(b)
	if err != nil || g.Sum != digest.Digest(hex.EncodeToString(sum)) {
		return nil, nil //nolint:nilerr // what is damaged is not known
	}
	return g, nil
}

// Runs lists the last runs of a workspace, newest first, without their tasks.
// An empty root stands for all workspaces.
func (h *History) Runs(ctx context.Context, root string, limit int) (all []Run, err error) {
	err = h.whole(ctx, func() error { all, err = h.runs(ctx, root, limit); return err })
	return all, err
}

func (h *History) runs(ctx context.Context, root string, limit int) ([]Run, error) {
	rows, err := h.db.QueryContext(ctx, `SELECT r.id, w.root, r.began, r.ended, r.platform, r.command, r.status, r.counts
		FROM runs r JOIN workspaces w ON w.id = r.workspace WHERE ? = '' OR w.root = ? ORDER BY r.began DESC LIMIT ?`, root, root, limit)
	if err != nil {
		return nil, h.failure(err, "read the history")
	}
	defer rows.Close()
	var all []Run
	for rows.Next() {
		r, err := scanRun(rows.Scan)
		if err != nil {
			return nil, h.failure(err, "read the history")
		}
		all = append(all, r)
	}
	return all, h.failure(rows.Err(), "read the history")
}

// Run returns a run with its tasks. A beginning of its ID is enough when no
// other run has it.
func (h *History) Run(ctx context.Context, runID string) (r *Run, err error) {
	err = h.whole(ctx, func() error { r, err = h.run(ctx, runID); return err })
	return r, err
}

func (h *History) run(ctx context.Context, runID string) (*Run, error) {
	rows, err := h.db.QueryContext(ctx, `SELECT r.id, w.root, r.began, r.ended, r.platform, r.command, r.status, r.counts, r.tasks
		FROM runs r JOIN workspaces w ON w.id = r.workspace WHERE substr(r.id, 1, length(?)) = ? LIMIT 2`, runID, runID)
	if err != nil {
		return nil, h.failure(err, "read the history")
	}
	defer rows.Close()
	var found []Run
	for rows.Next() {
		var tasks []byte
		r, err := scanRun(func(to ...any) error { return rows.Scan(append(to, &tasks)...) })
		if err != nil {
			return nil, h.failure(err, "read the history")
		}
		b, err := unpacker.DecodeAll(tasks, nil)
		if err == nil {
			err = json.Unmarshal(b, &r.Tasks)
		}
		if err != nil {
			return nil, errs.New(errs.DataLoss, "run %s in the history is damaged: %w", r.ID, err)
		}
		found = append(found, r)
	}
	if err := rows.Err(); err != nil {
		return nil, h.failure(err, "read the history")
	}
	switch {
	case len(found) == 0 || runID == "":
		return nil, errs.New(errs.NotFound, "no run %q is remembered: `brood runs ls` lists those that are", runID)
	case len(found) > 1 && found[0].ID != runID && found[1].ID != runID:
		return nil, errs.New(errs.InvalidArgument, "more than one run begins with %q: give more of its id", runID)
	case len(found) > 1 && found[1].ID == runID:
		return &found[1], nil
	}
	return &found[0], nil
}

// lastRuns is how many runs are looked through for a task.
const lastRuns = 20

// Last returns what became of a task when it last ran or was restored, and the
// run, without its tasks; nil when the last runs did not get to it.
func (h *History) Last(ctx context.Context, root string, task id.Task) (*Run, *Task, error) {
	runs, err := h.Runs(ctx, root, lastRuns)
	if err != nil {
		return nil, nil, err
	}
	for i := range runs {
		whole, err := h.Run(ctx, runs[i].ID)
		if err != nil {
			return nil, nil, err
		}
		for j := range whole.Tasks {
			if t := &whole.Tasks[j]; t.ID == task && (t.Attempts > 0 || t.Status == run.Cached) {
				return &runs[i], t, nil
			}
		}
	}
	return nil, nil, nil
}

func scanRun(scan func(...any) error) (Run, error) {
	var r Run
	var began, ended int64
	var command, status, counts string
	if err := scan(&r.ID, &r.Workspace, &began, &ended, &r.Platform, &command, &status, &counts); err != nil {
		return r, err
	}
	r.Began, r.Ended, r.Status = time.Unix(0, began), time.Unix(0, ended), run.Status(status)
	return r, errors.Join(json.Unmarshal([]byte(command), &r.Command), json.Unmarshal([]byte(counts), &r.Counts))
}
