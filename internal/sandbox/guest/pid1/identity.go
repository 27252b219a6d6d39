//go:build linux

package pid1

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// Where a program finds out which fork it runs in.
const (
	runDir    = "run/brood"
	forkFile  = "run/brood/fork.json"
	tokenFile = "run/brood/token"
)

// renew makes the sandbox the one that the host says, and reads back from
// inside what it became. User processes stay frozen if they are. Execs that
// were started before are the source's: they lose their streams.
//
// It may be called again, with the same identity or another.
func (s *Server) renew(ctx context.Context, a proto.IdentityArgs) (proto.IdentityResult, error) {
	if err := checkIdentity(a); err != nil {
		return proto.IdentityResult{}, err
	}
	release, err := s.lockFreezing(ctx)
	if err != nil {
		return proto.IdentityResult{}, err
	}
	defer release()
	s.releaseExecs()
	if s.log != nil {
		if err := s.log.Detect(); err != nil {
			return proto.IdentityResult{}, err
		}
	}
	r := renewal{s: s, args: a}
	if err := r.all(ctx); err != nil {
		return proto.IdentityResult{}, fmt.Errorf("renew identity: %w", err)
	}
	result := proto.IdentityResult{
		Name: a.Name, Hostname: r.hostname, Index: a.Index, Batch: a.Batch, UUID: r.uuid,
		NowNanos: time.Now().UnixNano(), Renewed: r.done,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = &result
	return result, nil
}

func checkIdentity(a proto.IdentityArgs) error {
	switch {
	case a.Hostname == "" || len(a.Hostname) > 64: // HOST_NAME_MAX
		return errs.New(errs.InvalidArgument, "host name %.80q is not valid: it has 1 to 64 characters", a.Hostname)
	case strings.ContainsAny(a.Hostname, " \t\n#/"):
		return errs.New(errs.InvalidArgument, "host name %.80q is not valid", a.Hostname)
	case a.Name == "" || a.UUID == "":
		return errs.New(errs.InvalidArgument, "an identity has a name and a uuid")
	case len(a.Entropy) < proto.MinEntropy:
		return errs.New(errs.InvalidArgument, "an identity needs at least %d bytes of entropy; %d came", proto.MinEntropy, len(a.Entropy))
	case len(a.MachineID) != 32 || strings.Trim(a.MachineID, "0123456789abcdef") != "":
		return errs.New(errs.InvalidArgument, "machine id %.80q is not valid: it is 32 lower-case hex digits", a.MachineID)
	case len(a.Inputs) > 0 && !json.Valid(a.Inputs):
		return errs.New(errs.InvalidArgument, "inputs are not JSON")
	}
	return nil
}

// releaseExecs forgets all execs; their programs go on.
func (s *Server) releaseExecs() {
	s.mu.Lock()
	var all []*exec
	for _, id := range s.order {
		all = append(all, s.execs[id])
	}
	s.execs, s.order = map[string]*exec{}, nil
	s.mu.Unlock()
	for _, x := range all {
		x.release()
	}
}

// renewal is one renewal under way.
type renewal struct {
	s        *Server
	args     proto.IdentityArgs
	hostname string
	uuid     string
	done     []proto.Renewed
}

// all renews in an order in which hooks find everything else done.
func (r *renewal) all(ctx context.Context) error {
	if err := r.entropy(); err != nil {
		return err
	}
	r.clock()
	if err := r.host(); err != nil {
		return err
	}
	r.machineID()
	if err := r.files(); err != nil {
		return err
	}
	r.s.mu.Lock()
	r.s.env = slices.Clone(r.args.Env)
	r.s.mu.Unlock()
	return r.hooks(ctx)
}

// note records what was renewed, or that it could not be and need not be.
func (r *renewal) note(what, value string, err error) {
	n := proto.Renewed{What: what, Value: value}
	if err != nil {
		n.Error = err.Error()
	}
	r.done = append(r.done, n)
}

// entropy mixes the host's random bytes into the kernel's and has it draw new
// keys at once where it can be told to. gVisor takes the bytes and reads its
// randomness from the host anyway.
func (r *renewal) entropy() error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(r.args.Entropy); err != nil {
		return err
	}
	value := fmt.Sprintf("%d bytes mixed in", len(r.args.Entropy))
	if credit(f, r.args.Entropy) == nil {
		value = fmt.Sprintf("%d bytes credited", len(r.args.Entropy))
	}
	r.note("entropy", value, nil)
	return nil
}

// clock steps the wall clock by what the host measured. Whether it is right
// after that is seen by the host, which knows how long the way took.
func (r *renewal) clock() {
	by := time.Duration(r.args.ClockStepNanos)
	if by == 0 {
		return
	}
	r.note("clock", by.String(), r.s.cfg.OS.StepClock(by))
}

func (r *renewal) host() error {
	old, err := r.s.cfg.OS.Hostname()
	if err != nil {
		return err
	}
	if err := r.s.cfg.OS.SetHostname(r.args.Hostname); err != nil {
		return errs.New(errs.FailedPrecondition, "set the host name: %w", err)
	}
	if r.hostname, err = r.s.cfg.OS.Hostname(); err != nil {
		return err
	}
	if r.hostname != r.args.Hostname {
		return errs.New(errs.Internal, "the host name is %q after it was set to %q", r.hostname, r.args.Hostname)
	}
	r.note("hostname", r.hostname, nil)
	if r.exists("etc/hostname") {
		r.note("/etc/hostname", r.hostname, r.write("etc/hostname", []byte(r.hostname+"\n"), 0o644))
	}
	if hosts, err := os.ReadFile(r.path("etc/hosts")); err == nil {
		r.note("/etc/hosts", r.hostname, r.write("etc/hosts", renameHost(hosts, old, r.hostname), 0o644))
	}
	return nil
}

// renameHost replaces a host's name in the content of /etc/hosts, or adds the
// new one when neither is there.
func renameHost(hosts []byte, from, to string) []byte {
	lines := strings.SplitAfter(string(hosts), "\n")
	found := false
	for i, line := range lines {
		text, comment, commented := strings.Cut(strings.TrimRight(line, "\n"), "#")
		fields := strings.Fields(text)
		changed := false
		for j := 1; j < len(fields); j++ {
			if fields[j] == from && from != "localhost" {
				fields[j], changed = to, true
			}
			found = found || fields[j] == to
		}
		if changed {
			text = strings.Join(fields, "\t")
			if commented {
				text += "\t#" + comment
			}
			lines[i] = text + "\n"
		}
	}
	out := strings.Join(lines, "")
	if !found {
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += "127.0.1.1\t" + to + "\n"
	}
	return []byte(out)
}

// machineID rewrites the ids that systemd and D-Bus keep, where they are. A
// link to another of them is followed by rewriting that one.
func (r *renewal) machineID() {
	for _, name := range []string{"etc/machine-id", "var/lib/dbus/machine-id"} {
		info, err := os.Lstat(r.path(name))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		r.note("/"+name, r.args.MachineID, r.write(name, []byte(r.args.MachineID+"\n"), 0o444))
	}
}

// files writes what programs read, and reads the uuid back.
func (r *renewal) files() error {
	a := r.args
	if len(a.Inputs) == 0 {
		a.Inputs = json.RawMessage("null")
	}
	content, err := json.Marshal(proto.ForkFile{Name: a.Name, Index: a.Index, Batch: a.Batch, UUID: a.UUID, Inputs: a.Inputs})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.path(runDir), 0o755); err != nil {
		return err
	}
	if err := replace(r.path(forkFile), append(content, '\n'), 0o644); err != nil {
		return err
	}
	if err := replace(r.path(tokenFile), []byte(a.Token), 0o600); err != nil {
		return err
	}
	back, err := os.ReadFile(r.path(forkFile))
	if err != nil {
		return err
	}
	var f proto.ForkFile
	if err := json.Unmarshal(back, &f); err != nil {
		return err
	}
	r.uuid = f.UUID
	r.note("uuid", f.UUID, nil)
	r.note("token", "/"+tokenFile, nil)
	return nil
}

func (r *renewal) path(name string) string { return filepath.Join(r.s.cfg.Root, name) }

func (r *renewal) exists(name string) bool {
	_, err := os.Lstat(r.path(name))
	return err == nil
}

// write replaces a file, or overwrites it where its folder takes no new ones
// (a single file mounted there).
func (r *renewal) write(name string, content []byte, mode os.FileMode) error {
	if replace(r.path(name), content, mode) == nil {
		return nil
	}
	return os.WriteFile(r.path(name), content, mode)
}

// replace writes a file by rename: nobody reads half of it.
func replace(path string, content []byte, mode os.FileMode) error {
	temp := path + ".brood-new"
	err := os.WriteFile(temp, content, mode)
	if err == nil {
		// The file may have been there, or the umask in the way.
		err = os.Chmod(temp, mode)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // may not be there
	}
	return err
}

func (s *Server) identityInfo() (proto.IdentityResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity == nil {
		return proto.IdentityResult{}, errs.New(errs.NotFound, "the sandbox was given no identity yet")
	}
	return *s.identity, nil
}
