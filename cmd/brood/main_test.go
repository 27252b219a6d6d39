package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
)

// TestHandsOver tries the program as it is built: what it does not link is done
// by the program that it carries, as if there were one.
func TestHandsOver(t *testing.T) {
	dir := t.TempDir()
	program, home := filepath.Join(dir, "brood"), filepath.Join(dir, "home")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	brood := func(args ...string) (out, say string, code int) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		cmd.Env = append(os.Environ(), "BROOD_HOME="+home)
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	for _, args := range []string{"version", "--version", "--help", "help run", "run --help", "completion bash", "__complete s", "__complete run --cwd"} {
		if out, say, code := brood(strings.Fields(args)...); out == "" || say != "" && !strings.HasPrefix(args, "__") || code != 0 {
			t.Errorf("%s: exit code %d, %q", args, code, say)
		}
	}
	if _, err := os.Stat(home); err == nil {
		t.Error("a home was made for what needs none")
	}
	out, say, code := brood("sb", "--help")
	if code == errs.ExitUnsupported { // a plain checkout: the message is the behaviour
		if !strings.Contains(say, "make build") {
			t.Errorf("it says %q", say)
		}
		return
	}
	if !strings.HasPrefix(out, "Make, use, save and fork sandboxes.") || code != 0 {
		t.Errorf("sb --help: exit code %d, %q %q", code, out, say)
	}
	for args, want := range map[string]int{
		"sb no-such-command":                 errs.ExitBadArgument,
		"daemon status --json":               errs.ExitTransport,
		"cache serve --size much":            errs.ExitBadArgument,
		"run build --remote-cache=grpc://:1": errs.ExitNotFound, // there is no workspace
		"__complete sb info x":               errs.ExitOK,
	} {
		if out, say, code := brood(strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d, not %d: %q %q", args, code, want, out, say)
		}
	}
	t.Run("a shared cache is no reason to fail", func(t *testing.T) {
		bad := filepath.Join(dir, "bad")
		for name, text := range map[string]string{
			"ws/brood.yaml":   "projects: [\".\"]\ntasks: {hello: {command: echo hello to all}}\n",
			"bad/home.json":   `{"format":1}`,
			"bad/programs":    "a file where the folder belongs",
			"ws/package.json": "{}",
		} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		out, say, code := brood("run", "hello", "--cwd", "ws", "--home", bad, "--remote-cache", "grpc://127.0.0.1:1")
		if code != 0 || !strings.Contains(out, "hello to all") || !strings.Contains(out+say, "the shared cache is not used") {
			t.Errorf("exit code %d: %q %q", code, out, say)
		}
	})
	other := filepath.Join(dir, "other")
	if _, say, code := brood("sb", "ls", "--home", other, "--help"); code != 0 {
		t.Errorf("exit code %d, %q", code, say)
	}
	if _, err := os.Stat(filepath.Join(other, "programs")); err != nil {
		t.Error("--home was not where it was written: ", err)
	}
}
