package runs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"brood/internal/base/life"
)

// place is a workspace whose root has tasks.
func place(t *testing.T, tasks string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "brood.yaml"), []byte("tasks:\n"+tasks), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func brood(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir = dir
	c.Env = []string{asBrood + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BROOD_HOME=" + t.TempDir(), "TERM=xterm", "NO_COLOR=1", "SELF=" + self}
	return c
}

// seat is a terminal that a command controls: what is typed there, and what is
// seen.
type seat struct {
	t        *testing.T
	cmd      *exec.Cmd
	keys     *os.File
	terminal *os.File
	before   *term.State

	mu   sync.Mutex // guards seen
	seen bytes.Buffer
}

// sit starts a command in a session of its own, as a login would.
func sit(t *testing.T, cmd *exec.Cmd) *seat {
	t.Helper()
	keys, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{t: t, cmd: cmd, keys: keys, terminal: terminal}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := pty.Setsize(keys, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	s.before = s.modes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := life.NewGroup(context.Background())
	g.Go("screen", func(context.Context) error {
		_, _ = io.Copy(s, keys) // until it is closed
		return nil
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		_ = cmd.Wait()
		terminal.Close()
		keys.Close()
		_ = g.Wait()
	})
	return s
}

// Write takes what is to be seen.
func (s *seat) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.Write(p)
}

func (s *seat) modes() *term.State {
	s.t.Helper()
	m, err := term.GetState(int(s.terminal.Fd()))
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *seat) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// until waits for a text on the screen.
func (s *seat) until(text string) {
	s.t.Helper()
	late := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(s.screen(), text) {
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("%q is never seen:\n%s", text, s.screen())
		}
	}
}

func (s *seat) press(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the command and checks its exit code, and that the terminal is
// what it was.
func (s *seat) ends(want int) {
	s.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	err := s.cmd.Wait()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		s.t.Fatal(err)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != want {
		s.t.Fatalf("exit code %d, want %d (%v):\n%s", got, want, err, s.screen())
	}
	if !reflect.DeepEqual(s.modes(), s.before) {
		s.t.Errorf("the terminal's modes are not what they were:\n%s", s.screen())
	}
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// outcome reads how a task ended from what --report wrote.
func outcome(t *testing.T, dir, task string) (status, signal string, exit int) {
	t.Helper()
	var report struct {
		Outcomes []struct {
			Task, Status, Signal string
			Exit                 int
		}
	}
	if err := json.Unmarshal([]byte(content(t, dir, "report.json")), &report); err != nil {
		t.Fatal(err)
	}
	for _, o := range report.Outcomes {
		if o.Task == task {
			return o.Status, o.Signal, o.Exit
		}
	}
	t.Fatalf("%s has no outcome", task)
	return
}

const ask = `
  ask:
    interactive: true
    command: |
      test -t 0 && test -t 1 && test -t 2 && echo yes > terminal
      stty -echo -icanon; stty echo icanon; stty -echo
      printf 'name? '
      read name
      echo "$name" > name
`

func TestAnInteractiveTaskHasTheTerminal(t *testing.T) {
	for _, flags := range [][]string{nil, {"--plain"}, {"--log-order=grouped"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			dir := place(t, ask)
			s := sit(t, brood(t, dir, append([]string{"run", "ask"}, flags...)...))
			s.until("name? ")
			s.press("ada\n")
			s.ends(0)
			if name, terminal := content(t, dir, "name"), content(t, dir, "terminal"); name != "ada\n" || terminal != "yes\n" {
				t.Errorf("it read %q, terminal %q", name, terminal)
			}
			_, after, _ := strings.Cut(s.screen(), "name? ")
			if n := strings.Count(s.screen(), "not cached, runs"); n != 1 || strings.Contains(after, "not cached, runs") {
				t.Errorf("its first line is there %d times, or late:\n%s", n, s.screen())
			}
		})
	}
}

// TestEachStepHasTheTerminal: a script and the one before it.
func TestEachStepHasTheTerminal(t *testing.T) {
	dir := place(t, "  ask: {interactive: true}\nprojects: {a: {}}\n")
	manifest := `{"scripts":{"preask":"echo one; read x; echo $x > first","ask":"echo two; read x; echo $x > second"}}`
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := sit(t, brood(t, dir, "run", "ask"))
	s.until("one\r\n")
	s.press("ada\n")
	s.until("two\r\n")
	s.press("bob\n")
	s.ends(0)
	if got := content(t, dir, "first") + content(t, dir, "second"); got != "ada\nbob\n" {
		t.Errorf("they read %q:\n%s", got, s.screen())
	}
}

// TestTheTerminalComesBack: Ctrl-C is the run's again after the task.
func TestTheTerminalComesBack(t *testing.T) {
	dir := place(t, ask+`
  then:
    dependsOn: [ask]
    command: echo begun; sleep 600
`)
	s := sit(t, brood(t, dir, "run", "then"))
	s.until("name? ")
	s.press("ada\n")
	s.until("then: begun")
	s.press("\x03")
	s.ends(130)
}

func TestCtrlCIsTheTasks(t *testing.T) {
	dir := place(t, `
  ask: {interactive: true, command: "stty -echo; echo ready; exec sleep 600"}
  catch: {interactive: true, command: "trap 'echo caught > caught; exit 0' INT; echo ready; while :; do sleep 1; done"}
`)
	s := sit(t, brood(t, dir, "run", "ask", "--report", "report.json"))
	s.until("ready")
	s.press("\x03")
	s.ends(1)
	if status, signal, exit := outcome(t, dir, "//#ask"); status != "failed" || signal != "SIGINT" || exit != 130 {
		t.Errorf("%s %s %d", status, signal, exit)
	}
	s = sit(t, brood(t, dir, "run", "catch"))
	s.until("ready")
	s.press("\x03")
	s.ends(0)
	content(t, dir, "caught")
}

// TestCtrlCIsNoFailureToRetry: whoever ends a task does not want it again.
func TestCtrlCIsNoFailureToRetry(t *testing.T) {
	for name, command := range map[string]string{"of a signal": "stty -echo; echo ready; exec sleep 600", "by itself": "trap 'exit 130' INT; echo ready; while :; do sleep 1; done"} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, `  ask: {interactive: true, retries: 2, command: "echo x >> tries; `+command+`"}`)
			s := sit(t, brood(t, dir, "run", "ask", "--retry=3"))
			s.until("ready")
			s.press("\x03")
			s.ends(1)
			if got := content(t, dir, "tries"); got != "x\n" {
				t.Errorf("it was tried again:\n%s", s.screen())
			}
		})
	}
	dir := place(t, `  ask: {interactive: true, command: "echo x >> tries; exit 1"}`)
	s := sit(t, brood(t, dir, "run", "ask", "--retry=1"))
	s.ends(1)
	if got := content(t, dir, "tries"); got != "x\nx\n" {
		t.Errorf("a failure is tried again: %q", got)
	}
}

// TestAbortTakesTheTerminalBack: also from a task that does not hear.
func TestAbortTakesTheTerminalBack(t *testing.T) {
	for name, command := range map[string]string{
		"hears": "stty -echo; echo ready; exec sleep 600",
		"deaf":  "trap '' TERM; stty -echo; echo ready; while :; do sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, `  ask: {interactive: true, command: "`+command+`"}`)
			s := sit(t, brood(t, dir, "run", "ask", "--report", "report.json"))
			s.until("ready")
			for range 2 { // the second kills
				if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			s.ends(130)
			if status, _, _ := outcome(t, dir, "//#ask"); status != "aborted" {
				t.Error(status)
			}
		})
	}
}

func TestATimeoutTakesTheTerminalBack(t *testing.T) {
	dir := place(t, `  ask: {interactive: true, timeout: 500ms, command: "stty -echo; echo ready; exec sleep 600"}`)
	s := sit(t, brood(t, dir, "run", "ask"))
	s.ends(1)
	s.until("it took too long")
}

// TestCtrlZWithoutAShell: nobody could continue it, so it goes on.
func TestCtrlZWithoutAShell(t *testing.T) {
	dir := place(t, ask)
	s := sit(t, brood(t, dir, "run", "ask"))
	s.until("name? ")
	s.press("\x1a")
	s.press("ada\n")
	s.ends(0)
	if name := content(t, dir, "name"); name != "ada\n" {
		t.Errorf("it read %q", name)
	}
}

// TestCtrlZInAShell: the whole job stops, and goes on with the terminal.
func TestCtrlZInAShell(t *testing.T) {
	dir := place(t, ask)
	c := brood(t, dir)
	shell := exec.Command("/bin/sh", "-c", `set -m; "$SELF" run ask; echo "stopped with $?"; fg; echo "over with $?"`)
	shell.Dir, shell.Env = c.Dir, c.Env
	s := sit(t, shell)
	s.until("name? ")
	s.press("\x1a")
	s.until("stopped with 1") // 128 and SIGTSTP
	s.press("ada\n")
	s.until("over with 0")
	s.ends(0)
	if name := content(t, dir, "name"); name != "ada\n" {
		t.Errorf("it read %q", name)
	}
}

// TestWithoutATerminal: where nobody could answer the input is empty and the
// output the view's.
func TestWithoutATerminal(t *testing.T) {
	tasks := `  ask: {interactive: true, command: "test -t 0 || echo no terminal; read x || echo no input"}`
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"pipes", nil, "ask: no terminal\n//:ask: no input\n"},
		{"json", []string{"--json"}, `"text":"no terminal\nno input\n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := brood(t, place(t, tasks), append([]string{"run", "ask"}, c.args...)...)
			cmd.Stdin = strings.NewReader("ada\n")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
	for _, c := range []struct{ name, env, arg string }{{"ci", "CI=true", "--plain"}, {"json on a terminal", "X=", "--json"}} {
		t.Run(c.name, func(t *testing.T) {
			cmd := brood(t, place(t, tasks), "run", "ask", c.arg)
			cmd.Env = append(cmd.Env, c.env)
			s := sit(t, cmd)
			s.ends(0)
			s.until("no terminal")
			s.until("no input")
		})
	}
}

// TestInTheBackground: the terminal is the shell's, and stays it.
func TestInTheBackground(t *testing.T) {
	dir := place(t, `  ask: {interactive: true, command: "test -t 0 || echo no terminal; read x || echo no input"}`)
	c := brood(t, dir)
	shell := exec.Command("/bin/sh", "-c", `set -m; "$SELF" run ask & wait $!; echo "over with $?"; read x; echo "the shell read $x"`)
	shell.Dir, shell.Env = c.Dir, c.Env
	s := sit(t, shell)
	s.until("ask: no input")
	s.until("over with 0")
	s.press("ada\n")
	s.until("the shell read ada")
	s.ends(0)
}

// TestAPersistentTaskHasNoTerminal though it is interactive.
func TestAPersistentTaskHasNoTerminal(t *testing.T) {
	dir := place(t, `  dev: {interactive: true, persistent: true, command: "test -t 0 || echo no terminal; read x || echo no input"}`)
	s := sit(t, brood(t, dir, "run", "dev"))
	s.until("dev: no input")
	s.ends(0)
}
