package fake_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/host"
)

// hosted is a host over a fake, and where its records are.
type hosted struct {
	t    *testing.T
	w    *fake.World
	home *home.Home
	root string
	host *host.Host
}

func newHosted(t *testing.T, before fake.Hooks) *hosted {
	t.Helper()
	h, err := home.Open(t.TempDir())
	check(t, err)
	b := &hosted{t: t, w: newWorld(t), home: h, root: t.TempDir()}
	check(t, os.WriteFile(filepath.Join(b.root, "file"), []byte("x"), 0o600))
	b.host = openHost(t, h, fake.Faulty(b.w.Driver(), before, nil))
	t.Cleanup(func() { check(t, b.host.Close()) })
	return b
}

func (b *hosted) create(p host.CreateParams, argv ...string) (host.Sandbox, error) {
	p.Image, p.Command = b.root, guest.Command{Argv: argv}
	return b.host.Create(b.t.Context(), p)
}

// unwritable makes a sandbox's record one that cannot be written, as on a full
// disk: a folder is in its place.
func (b *hosted) unwritable(sb id.Sandbox) {
	b.t.Helper()
	record := filepath.Join(b.home.Sandboxes(), string(sb), "sandbox.json")
	check(b.t, os.Remove(record))
	check(b.t, os.Mkdir(record, 0o700))
}

// gone waits until nothing is left.
func (b *hosted) gone() {
	b.t.Helper()
	limit := time.After(time.Minute)
	for {
		folders, err := os.ReadDir(b.home.Sandboxes())
		check(b.t, err)
		live, err := b.w.Driver().List(b.t.Context())
		check(b.t, err)
		if len(b.host.List()) == 0 && len(folders) == 0 && len(live) == 0 {
			return
		}
		select {
		case <-limit:
			b.t.Fatalf("left: %+v, folders %v, sandboxes %+v", b.host.List(), folders, live)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// What cannot be written down does not keep a sandbox: it goes, and its space
// is free.
func TestDeleteWithoutRoomForItsRecord(t *testing.T) {
	b := newHosted(t, nil)
	sb, err := b.create(host.CreateParams{Name: "src"}, "counter")
	check(t, err)
	b.unwritable(sb.ID)
	check(t, b.host.Delete(t.Context(), "src"))
	b.gone()
}

// A removal that fails half way is one that the host tries again; meanwhile
// the sandbox is seen to be going.
func TestDeleteThatFailsIsTriedAgain(t *testing.T) {
	broken := errs.New(errs.Unavailable, "broken on purpose")
	b := newHosted(t, fake.Hooks{fake.OpDestroy: fake.Nth(1, broken)})
	_, err := b.create(host.CreateParams{Name: "src"}, "counter")
	check(t, err)
	if err := b.host.Delete(t.Context(), "src"); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("deleted: %v", err)
	}
	if sb, err := b.host.Get("src"); err != nil || sb.State != sandbox.Deleting {
		t.Errorf("meanwhile it is %+v, %v", sb, err)
	}
	b.gone()
}

// The same for a sandbox that could not be made: nothing of it stays for ever.
func TestCreateThatCannotBeTakenBackIsRemovedLater(t *testing.T) {
	broken := errs.New(errs.Unavailable, "broken on purpose")
	b := newHosted(t, fake.Hooks{fake.OpDestroy: fake.Nth(1, broken)})
	_, err := b.create(host.CreateParams{Name: "src"}, "/no/such/program")
	if err == nil || !strings.Contains(err.Error(), "broken on purpose") {
		t.Fatalf("made: %v", err)
	}
	b.gone()
}

var toPort = host.CreateParams{Name: "src", Probes: []host.Probe{{Port: 8000}}}

// What waits for a command is told at once when the command has ended, how,
// and what it said.
func TestReadinessEndsWithTheCommand(t *testing.T) {
	b := newHosted(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // far below the limit of a probe
	defer cancel()
	p := toPort
	p.Image, p.Command = b.root, guest.Command{Argv: []string{"sh", "-c", "echo no such model; exit 3"}}
	_, err := b.host.Create(ctx, p)
	if !errs.Is(err, errs.FailedPrecondition) {
		t.Fatalf("created: %v", err)
	}
	for _, part := range []string{"status 3", "no such model", "tcp port 8000", "--keep-on-failure"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	b.gone()
}

// The failed one is there to be looked at when that was asked for.
func TestFailedCreateIsKept(t *testing.T) {
	b := newHosted(t, nil)
	p := toPort
	p.KeepFailed = true
	_, err := b.create(p, "sh", "-c", "echo no such model; exit 3")
	if err == nil || !strings.Contains(err.Error(), "brood sb logs src") {
		t.Fatalf("created: %v", err)
	}
	_, sb, err := b.host.Logs("src")
	if err != nil || sb.Reason == "" {
		t.Errorf("it is %+v, %v", sb, err)
	}
	check(t, b.host.Delete(t.Context(), "src"))
	b.gone()
}
