package full_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/full"
	"brood/internal/home"
)

var update = flag.Bool("update", false, "write what is seen into scripts and goldens")

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"brood": func() { os.Exit(full.Main(os.Args[1:], runFake)) },
	})
}

// leakless fails when the tests leave goroutines behind.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the scripts of testdata/scripts, each with a home of its
// own. Their daemon is the fake one, started as the real one would be.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/scripts",
		Setup: func(e *testscript.Env) error {
			dir := filepath.Join(e.WorkDir, "h")
			e.Setenv("BROOD_HOME", dir)
			e.Setenv("SECRET", "42")
			e.Defer(func() { stopDaemon(t, dir) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": await, "normal": normal,
		},
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// stopDaemon ends the daemon of a script and waits until its lock is free.
func stopDaemon(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Home: dir})
	if errs.Is(err, errs.Unavailable) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if err := c.Shutdown(ctx); err != nil {
		t.Error(err)
		return
	}
	h := home.At(dir)
	if !poll(ctx, func() bool {
		lock, err := h.TryLock("daemon")
		return err == nil && lock.Unlock() == nil
	}) {
		t.Errorf("the daemon of %s does not end", dir)
	}
}

// poll asks again and again until ok or the end of ctx.
func poll(ctx context.Context, ok func() bool) bool {
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-ticks.C:
		}
	}
	return true
}

// await waits until a file has a text: await h/logs/daemon.log 'is stuck'.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := ts.MkAbs(args[0])
	if !poll(ctx, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), args[1])
	}) {
		b, _ := os.ReadFile(path)
		ts.Fatalf("%s never had %q:\n%s", args[0], args[1], b)
	}
}

// changing is what differs from run to run, with what stands for it.
var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`), `"TIME"`},
	{regexp.MustCompile(`("truncated":\w+,"elapsed_ms"):\d+`), `$1:0`},
	{regexp.MustCompile(`"pid":\d{2,}`), `"pid":0`},
	{regexp.MustCompile(`\b\d+[sm] ago`), `Ns ago`},
	{regexp.MustCompile(`   +`), `  `}, // columns are as wide as what differs
}

// normal writes a file without what differs from run to run: normal stdout out.
func normal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: normal FROM TO")
	}
	text := strings.ReplaceAll(ts.ReadFile(args[0]), ts.Getenv("WORK"), "$WORK")
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}
