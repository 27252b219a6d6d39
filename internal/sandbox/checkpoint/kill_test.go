package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/home"
)

// childEnv makes the test program run one operation on a store instead of the
// tests: "home|operation|place", killing itself at the place with that number.
const childEnv = "BROOD_TEST_CHECKPOINT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		run := child
		if dir, ok := strings.CutPrefix(os.Getenv(childEnv), "full disk|"); ok {
			run = func(string) error { return fullDisk(dir) }
		}
		if err := run(os.Getenv(childEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(spec string) error {
	parts := strings.Split(spec, "|")
	dieAt, err := strconv.Atoi(parts[2])
	if err != nil {
		return err
	}
	s, err := Open(home.At(parts[0]))
	if err != nil {
		return err
	}
	passed := 0
	at = func(string) {
		if passed++; passed == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if parts[1] == "churn" {
		return churn(s)
	}
	return operations[parts[1]](s)
}

// operations start from a store with one checkpoint "base" of content "old".
var operations = map[string]func(*Store) error{
	"create":  func(s *Store) error { return produce(s, "fresh", "new", Options{}) },
	"replace": func(s *Store) error { return produce(s, "base", "new", Options{Replace: true}) },
	"delete":  func(s *Store) error { return s.Delete("base") },
	"rename":  func(s *Store) error { return s.Rename("base", "moved") },
	"discard": func(s *Store) error {
		d, err := s.Begin("fresh", Options{})
		if err != nil {
			return err
		}
		at("discard:begun")
		return d.Discard()
	},
}

// results says which states each operation may leave: names and contents.
var results = map[string][]string{
	"create":  {"base=old", "base=old fresh=new"},
	"replace": {"base=old", "base=new"},
	"delete":  {"base=old", ""},
	"rename":  {"base=old", "moved=old"},
	"discard": {"base=old"},
}

func produce(s *Store, name id.Name, mark string, o Options) error {
	d, err := s.Begin(name, o)
	if err != nil {
		return err
	}
	for file, size := range map[string]int{"pages": 300_000, "sub/state": 1000} {
		p := filepath.Join(d.Dir(), file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(strings.Repeat(mark, size/len(mark))), 0o600)); err != nil {
			return errors.Join(home.DiskError(err, "driver"), d.Discard())
		}
		at("driver:" + file)
	}
	_, err = d.Publish(context.Background(), Facts{
		Driver: "fake", Capture: Memory, Needs: Needs{Arch: "amd64"}, Base: Base{Kind: EROFS, Digest: digest.Of(nil)},
	})
	return err
}

// state opens the store as the next daemon would, checks that all in it is
// whole and nothing else is there, and describes it.
func state(t *testing.T, h *home.Home) string {
	t.Helper()
	s, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if bad := s.Damaged(); len(bad) > 0 {
		t.Fatalf("damaged: %v", bad)
	}
	var words []string
	for _, c := range s.List() {
		if err := s.Verify(t.Context(), c.Name, nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(c.Dir, "pages"))
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, fmt.Sprintf("%s=%s", c.Name, b[:3]))
	}
	entries, err := os.ReadDir(h.Checkpoints())
	if err != nil || len(entries) != len(words) {
		t.Fatalf("debris: %v (%v) beside %v", entries, err, words)
	}
	return strings.Join(words, " ")
}

func start(t *testing.T, h *home.Home, op string, dieAt int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", childEnv, h.Dir(), op, dieAt))
	cmd.Stderr = os.Stderr
	return cmd
}

func wasKilled(t *testing.T, err error) bool {
	t.Helper()
	var exit *exec.ExitError
	if err == nil {
		return false
	}
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	t.Fatal(err)
	return false
}

func TestKilledAtEveryPlace(t *testing.T) {
	for op, allowed := range results {
		t.Run(op, func(t *testing.T) {
			seen := map[string]bool{}
			for place := 1; ; place++ {
				h, err := home.Open(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				s, err := Open(h)
				if err != nil {
					t.Fatal(err)
				}
				if err := produce(s, "base", "old", Options{}); err != nil {
					t.Fatal(err)
				}
				killed := wasKilled(t, start(t, h, op, place).Run())
				got := state(t, h)
				ok := false
				for _, a := range allowed {
					ok = ok || a == got
				}
				if !ok {
					t.Fatalf("killed at place %d: the store holds %q, want one of %q", place, got, allowed)
				}
				seen[got] = true
				if !killed {
					if got != allowed[len(allowed)-1] {
						t.Errorf("%s did nothing: %q", op, got)
					}
					break
				}
			}
			if len(seen) != len(allowed) {
				t.Errorf("only %v seen of %q: the places do not cover the operation", seen, allowed)
			}
		})
	}
}

// churn makes, replaces, renames and deletes without end, and says so.
func churn(s *Store) error {
	for i := 0; ; i++ {
		name := id.Name(fmt.Sprintf("c%d", i%3))
		if err := produce(s, name, fmt.Sprintf("n%02d", i%100), Options{Replace: true}); err != nil {
			return err
		}
		if i%3 == 1 {
			if err := errors.Join(s.Pin(name), s.Unpin(name), s.Rename(name, "moved")); err != nil {
				return err
			}
		}
		if i%3 == 2 {
			if err := s.Delete("moved"); err != nil {
				return err
			}
		}
		fmt.Println(i)
	}
}

// TestKilledAnywhere kills a busy process from outside, wherever it is then.
func TestKilledAnywhere(t *testing.T) {
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kills := 10
	if testing.Short() {
		kills = 3
	}
	for range kills {
		cmd := start(t, h, "churn", 0)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := rand.IntN(6); n >= 0 && lines.Scan(); n-- {
		}
		spin(rand.IntN(3_000_000)) // somewhere in the next operations
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if !wasKilled(t, cmd.Wait()) {
			t.Fatal("the child ended by itself")
		}
		state(t, h)
		s, err := Open(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.List() {
			if err := errors.Join(s.Unpin(c.Name), s.Delete(c.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var spun int

func spin(n int) {
	for i := range n {
		spun += i
	}
}
