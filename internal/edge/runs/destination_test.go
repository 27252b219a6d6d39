package runs_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// reported says whether a text ends with the report of a run.
func reported(text []byte) bool {
	at := bytes.LastIndex(text, []byte("\n{"))
	return json.Valid(text[at+1:]) && bytes.Contains(text, []byte(`"summary"`))
}

func TestReportsGoWhereLinksLead(t *testing.T) {
	dir := place(t, "  build: touch ran\n")
	out := filepath.Join(t.TempDir(), "real")
	for _, link := range []string{"there.json", "fresh.json"} {
		if err := os.Symlink(filepath.Join(out, link), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "there.json"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"there.json", "fresh.json"} {
		if text, err := brood(t, dir, "run", "build", "--report="+link).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if info, err := os.Lstat(filepath.Join(dir, link)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is a link no more: %v", link, err)
		}
		if text, err := os.ReadFile(filepath.Join(out, link)); err != nil || !reported(text) {
			t.Errorf("%s leads to %q, %v", link, text, err)
		}
	}
}

func TestReportsGoIntoPipes(t *testing.T) {
	dir := place(t, "  build: touch ran\n")
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	// Open for both, so that neither end waits for the other.
	named, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for path, from := range map[string]*os.File{name: named, "/dev/fd/3": r} {
		c := brood(t, dir, "run", "build", "--report="+path)
		c.ExtraFiles = []*os.File{w}
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", path, err, text)
		}
		text := make([]byte, 64<<10) // what a pipe holds
		n, err := from.Read(text)
		if err != nil || !reported(text[:n]) {
			t.Errorf("%s got %q, %v", path, text[:n], err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("it is a pipe no more: %v", err)
	}
}

func TestReportsOnStandardOutputComeAfterTheRun(t *testing.T) {
	dir := place(t, "  build: echo built\n")
	path := filepath.Join(t.TempDir(), "out")
	for _, how := range []string{"file", "pipe"} {
		c := brood(t, dir, "run", "build", "--report=/dev/stdout")
		var text []byte
		var err error
		if how == "file" {
			file, createErr := os.Create(path)
			if createErr != nil {
				t.Fatal(createErr)
			}
			c.Stdout = file
			if err = c.Run(); err == nil {
				err = file.Close()
			}
			text, _ = os.ReadFile(path)
		} else {
			text, err = c.Output()
		}
		if err != nil || !bytes.Contains(text, []byte("built")) || !reported(text) {
			t.Errorf("%s: %v: %s", how, err, text)
		}
	}
}

// Who waits for the reader of a pipe can be interrupted.
func TestAPipeWithoutReaderIsWaitedForUntilInterrupted(t *testing.T) {
	dir := place(t, "  build: echo built\n")
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	c := brood(t, dir, "run", "build", "--report="+name)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), "Tasks"); {
		continue // until the run is over
	}
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait() // the code says it
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

// What cannot be written is said before anything runs.
func TestFilesOfARunAreCheckedFirst(t *testing.T) {
	dir := place(t, "  build: touch ran\n")
	if err := os.Symlink("same.json", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	type try struct {
		args []string
		says string
	}
	tries := []try{
		{[]string{"--report=same.json", "--junit=./same.json"}, "both name"},
		{[]string{"--report=same.json", "--trace=link.json"}, "both name"},
		{[]string{"--graph=x.png"}, ".dot and .svg"},
	}
	for _, flag := range []string{"--report", "--junit", "--trace", "--summarize", "--graph"} {
		for to, says := range map[string]string{
			".": "is a folder", "none/x": "there is no folder", "new/": "name of a folder",
			"brood.yaml/x": "below something that is no folder", "loop": "symbolic links",
		} {
			tries = append(tries, try{[]string{flag + "=" + to}, says})
		}
		if flag != "--graph" {
			tries = append(tries, try{[]string{flag + "=-"}, "/dev/stdout"})
		}
	}
	for _, r := range tries {
		c := brood(t, dir, slices.Concat([]string{"run", "build"}, r.args)...)
		text, _ := c.CombinedOutput()
		if code := c.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(text), r.says) {
			t.Errorf("%v: exit code %d, %s", r.args, code, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the task ran")
	}
}
