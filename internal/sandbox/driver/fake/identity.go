package fake

import (
	"encoding/json"
	"slices"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// identify makes the sandbox the one that the host says.
func (m *machine) identify(a proto.IdentityArgs) (proto.IdentityResult, error) {
	if a.Hostname == "" || a.Name == "" || a.UUID == "" || len(a.Entropy) < proto.MinEntropy {
		return proto.IdentityResult{}, errs.New(errs.InvalidArgument, "an identity has a name, a host name, a uuid and entropy")
	}
	for _, id := range m.s.Order {
		if x := m.s.Execs[id]; x != nil {
			m.release(x)
		}
	}
	m.s.Order = nil
	if m.log != nil {
		if err := m.log.Detect(); err != nil {
			return proto.IdentityResult{}, err
		}
	}
	r := proto.IdentityResult{Name: a.Name, Hostname: a.Hostname, Index: a.Index, Batch: a.Batch, UUID: a.UUID}
	m.s.Step += time.Duration(a.ClockStepNanos)
	m.s.Hostname, m.s.Env = a.Hostname, slices.Clone(a.Env)
	r.NowNanos = m.clock().UnixNano()
	if len(a.Inputs) == 0 {
		a.Inputs = json.RawMessage("null")
	}
	fork, err := json.Marshal(proto.ForkFile{Name: a.Name, Index: a.Index, Batch: a.Batch, UUID: a.UUID, Inputs: a.Inputs})
	if err != nil {
		return proto.IdentityResult{}, err
	}
	t := m.s.Files
	t.mkdirAll("/run/brood")
	for _, f := range []struct {
		what, name string
		data       []byte
	}{
		{"hostname", "/etc/hostname", []byte(a.Hostname + "\n")},
		{"uuid", "/run/brood/fork.json", append(fork, '\n')},
		{"token", "/run/brood/token", []byte(a.Token)},
		{"/etc/machine-id", "/etc/machine-id", []byte(a.MachineID + "\n")},
	} {
		if err := t.write(f.name, f.data, 0o644); err != nil {
			return proto.IdentityResult{}, errs.New(errs.FailedPrecondition, "renew identity: %w", err)
		}
		r.Renewed = append(r.Renewed, proto.Renewed{What: f.what, Value: f.name})
	}
	m.s.Identity = &r
	return r, nil
}

func (m *machine) identity(none) (proto.IdentityResult, error) {
	if m.s.Identity == nil {
		return proto.IdentityResult{}, errs.New(errs.NotFound, "the sandbox was given no identity yet")
	}
	return *m.s.Identity, nil
}
