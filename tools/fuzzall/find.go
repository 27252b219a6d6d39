package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// target is one fuzz test.
type target struct {
	module string // folder of its module
	pkg    string // import path
	name   string
}

func (t target) String() string { return t.pkg + " " + t.name }

// goCommand runs the go command in a folder. When the context ends it is
// interrupted, with everything it started, and given a moment.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns what a go command prints, with its complaint in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s%s", strings.Join(cmd.Args, " "), cmd.Dir, err, complaint.Bytes(), out)
	}
	return out, nil
}

// listed is what we read of a package that go list prints.
type listed struct {
	Dir          string
	ImportPath   string
	TestGoFiles  []string
	XTestGoFiles []string
}

var fuzzFunc = regexp.MustCompile(`(?m)^func Fuzz[\pL\pN_]*\(`)

// mayFuzz says whether a test file of the package declares a fuzz test. Only
// such packages are built to be asked, which takes long.
func (p listed) mayFuzz() (bool, error) {
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		raw, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return false, err
		}
		if fuzzFunc.Match(raw) {
			return true, nil
		}
	}
	return false, nil
}

// findTargets returns the fuzz tests of a module, in the order of go list.
func findTargets(ctx context.Context, module string) ([]target, error) {
	out, err := output(goCommand(ctx, module, "list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./..."))
	if err != nil {
		return nil, err
	}
	var all []target
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		may, err := p.mayFuzz()
		if err != nil {
			return nil, err
		}
		if !may {
			continue
		}
		names, err := output(goCommand(ctx, module, "test", "-list", "^Fuzz", p.ImportPath))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(names)) {
			if name := strings.TrimSpace(line); strings.HasPrefix(name, "Fuzz") {
				all = append(all, target{module: module, pkg: p.ImportPath, name: name})
			}
		}
	}
}
