package exec

import (
	"context"
	"fmt"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/host"
)

// found is a source of a request, looked up: a checkpoint, or a sandbox that
// will be saved once for the batch.
type found struct {
	ref     string
	sandbox id.Name // not empty: to be saved
	cp      checkpoint.Checkpoint
	memory  uint64 // MiB
}

// find looks up every distinct source of a request (F40): a checkpoint here,
// else a sandbox here. Nothing is done yet.
func (m *Manager) find(req batch.Request) ([]found, error) {
	refs := []string{req.Source}
	if req.Source == "" {
		refs = refs[:0]
	}
	for _, g := range req.Groups {
		refs = append(refs, g.Source)
	}
	seen := map[string]bool{}
	var all []found
	for _, ref := range refs {
		if seen[ref] {
			continue
		}
		seen[ref] = true
		f, err := m.findOne(ref)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func (m *Manager) findOne(ref string) (found, error) {
	kind, name, err := batch.ParseSource(ref)
	if err != nil {
		return found{}, err
	}
	if kind != batch.SandboxSource {
		cp, err := m.checkpointCalled(name)
		if err == nil {
			if err := cp.Check(m.p.Host.Machine()); err != nil {
				return found{}, fmt.Errorf("source %s: %w", ref, err)
			}
			return found{ref: ref, cp: cp, memory: cp.Manifest.Shape.MemoryMiB}, nil
		}
		if kind == batch.CheckpointSource || !errs.Is(err, errs.NotFound) {
			return found{}, err
		}
	}
	sb, err := m.p.Host.Get(id.Name(name))
	if errs.Is(err, errs.NotFound) && kind == batch.AnySource {
		return found{}, errs.New(errs.NotFound, "source %q is neither a checkpoint nor a sandbox here: see `brood sb checkpoints ls` and `brood sb ls`", name)
	}
	if err != nil {
		return found{}, err
	}
	if err := m.p.Host.CanCapture(sb.Name); err != nil {
		return found{}, err
	}
	return found{ref: ref, sandbox: sb.Name, memory: sb.Shape.MemoryMiB}, nil
}

func (m *Manager) checkpointCalled(name string) (checkpoint.Checkpoint, error) {
	if d, err := digest.Parse(name); err == nil {
		return m.p.Checkpoints.ByDigest(d)
	}
	return m.p.Checkpoints.Get(id.Name(name))
}

// sourcesOf is what a batch needs to know of its sources before any is saved:
// enough for the names.
func sourcesOf(all []found) []batch.Source {
	sources := make([]batch.Source, len(all))
	for i, f := range all {
		sources[i] = source(f, f.cp, f.sandbox != "")
	}
	return sources
}

func digestsOf(sources []batch.Source) []digest.Digest {
	all := make([]digest.Digest, len(sources))
	for i, s := range sources {
		all[i] = s.Digest
	}
	return all
}

func source(f found, cp checkpoint.Checkpoint, temp bool) batch.Source {
	return batch.Source{
		Ref: f.ref, Checkpoint: string(cp.Name), Digest: cp.Digest, MemoryMiB: f.memory,
		Held: []id.Machine{id.Local}, Temp: temp,
	}
}

// save makes the checkpoints of sources that are sandboxes, each once.
func (m *Manager) save(ctx context.Context, b id.Batch, all []found) ([]batch.Source, error) {
	sources := make([]batch.Source, len(all))
	for i, f := range all {
		cp := f.cp
		if f.sandbox != "" {
			c, err := m.p.Host.Capture(ctx, host.CaptureParams{Source: f.sandbox, Name: tempName(f.sandbox), Temporary: b})
			if err != nil {
				return nil, err
			}
			cp = c.Checkpoint
		}
		sources[i] = source(f, cp, f.sandbox != "")
	}
	return sources, nil
}

// tempName draws a name for a batch's own checkpoint.
func tempName(source id.Name) id.Name {
	const suffix = 13 // "-" and 12 digits
	cut := strings.TrimRight(string(source[:min(len(source), id.MaxName-suffix)]), "-")
	return id.Name(cut + "-" + id.Random(6))
}
