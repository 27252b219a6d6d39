package fake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// The files of a capture: what is inside, and a checksum of it.
const (
	imageFile = "fake.img"
	sumFile   = "fake.sum"
)

// saved is a capture.
type saved struct {
	Runtime id.Runtime
	State   state
	Procs   []savedProcess
}

type savedProcess struct {
	PID, PPID int
	Argv, Env []string
	Cwd       string
	TTY       bool
	Name      string
	State     json.RawMessage
	Out       string
	Ports     []uint16
	Left      bool
	Waits     bool          // it is to be woken
	Paused    time.Duration // of running, from now
}

// save writes the state into dir.
func (m *machine) save(dir string, rt id.Runtime) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "capture: %w", err)
	}
	if len(entries) > 0 {
		return errs.New(errs.FailedPrecondition, "capture: %s is not empty", dir)
	}
	b, err := m.image(rt)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(dir, imageFile), b, 0o600)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, sumFile), []byte(digest.Of(b)), 0o600)
	}
	if err != nil {
		return errs.New(errs.InsufficientDisk, "capture: %w", err)
	}
	return nil
}

func (m *machine) image(rt id.Runtime) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, errs.New(errs.NotFound, "capture: the sandbox has ended")
	}
	if !m.s.Frozen {
		return nil, errs.New(errs.FailedPrecondition, "capture: the guest is not frozen")
	}
	out := saved{Runtime: rt, State: m.s}
	for pid := range m.s.LastPID + 1 {
		p := m.s.procs[pid]
		if p == nil {
			continue
		}
		state, err := json.Marshal(p.prog)
		if err != nil {
			return nil, errs.New(errs.Internal, "capture: program %s: %w", p.name, err)
		}
		out.Procs = append(out.Procs, savedProcess{
			PID: p.PID, PPID: p.PPID, Argv: p.Argv, Env: p.Env, Cwd: p.Cwd, TTY: p.TTY, Name: p.name, State: state,
			Out: p.out, Ports: p.ports, Left: p.left, Waits: !p.due.IsZero(), Paused: p.paused,
		})
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, errs.New(errs.Internal, "capture: %w", err)
	}
	return b, nil
}

// load fills the state from dir. What is loaded is frozen.
func (m *machine) load(dir string, rt id.Runtime) error {
	b, err := os.ReadFile(filepath.Join(dir, imageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.DataLoss, "restore: %w", err)
	}
	sum, e := os.ReadFile(filepath.Join(dir, sumFile))
	if err = errors.Join(err, e); err != nil {
		return errs.New(errs.DataLoss, "restore: %w", err)
	}
	if digest.Of(b) != digest.Digest(bytes.TrimSpace(sum)) {
		return errs.New(errs.DataLoss, "restore: %s is damaged", filepath.Join(dir, imageFile))
	}
	var from saved
	if err := json.Unmarshal(b, &from); err != nil {
		return errs.New(errs.DataLoss, "restore: %w", err)
	}
	if from.Runtime != rt {
		return errs.New(errs.FailedPrecondition, "restore: made by runtime %s, not %s", from.Runtime, rt)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s = from.State
	m.s.procs = map[int]*Process{}
	if m.s.Execs == nil {
		m.s.Execs = map[string]*exec{}
	}
	for _, sp := range from.Procs {
		if err := m.revive(sp); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) revive(sp savedProcess) error {
	name, prog, err := m.w.program(sp.Name)
	if err == nil {
		err = json.Unmarshal(sp.State, prog)
	}
	if err != nil {
		return errs.New(errs.DataLoss, "restore: program %s: %w", sp.Name, err)
	}
	p := &Process{
		PID: sp.PID, PPID: sp.PPID, Argv: sp.Argv, Env: sp.Env, Cwd: sp.Cwd, TTY: sp.TTY,
		m: m, name: name, prog: prog, out: sp.Out, ports: sp.Ports, left: sp.Left, paused: sp.Paused, started: time.Now(),
	}
	if sp.Waits {
		p.due = time.Now().Add(sp.Paused)
	}
	m.s.procs[p.PID] = p
	return nil
}

// cut shortens the image of a capture to half.
func cut(dir string) error {
	name := filepath.Join(dir, imageFile)
	st, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Truncate(name, st.Size()/2)
}
