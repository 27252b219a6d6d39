package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository makes a folder with two modules: the root with three fuzz tests,
// of which one finds nothing, one finds something and one fails on its seed,
// and runtime with none.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"go.mod":         "module example.test/root\n\ngo 1.26\n",
		"runtime/go.mod": "module example.test/root/runtime\n\ngo 1.26\n",
		"runtime/r.go":   "package runtime\n",
		"plain_test.go":  "package root\n\nthis would not build, and has no fuzz test\n",
	}
	for name, body := range map[string]string{
		"Fine": "", "Found": "if n != 1 { t.Fatal(\"too bad\") }", "Seed": "t.Fatal(\"from the start\")",
	} {
		files[strings.ToLower(name)+"/x_test.go"] = "package x_test\n\nimport \"testing\"\n\n" +
			"func Fuzz" + name + "(f *testing.F) {\n\tf.Add(1)\n\tf.Fuzz(func(t *testing.T, n int) {" + body + "})\n}\n\n" +
			"func TestNot(t *testing.T) { t.Fatal(\"only fuzz tests run\") }\n"
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestFuzzall really fuzzes, in a small repository.
func TestFuzzall(t *testing.T) {
	root := repository(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-time", "300x", "-root", root}, &out, t.Output())
	if err == nil || !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("run: %v, want two failures", err)
	}
	for _, want := range []string{
		"3 fuzz tests, 300x each", "[1/3] example.test/root/fine FuzzFine: elapsed", "testdata/fuzz/FuzzFound/", "too bad", "from the start",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not show %q", want)
		}
	}
	for name, verdict := range map[string]string{"FuzzFine": "ok", "FuzzFound": "FOUND", "FuzzSeed": "FAILED"} {
		if !regexp.MustCompile(`(?m)^` + verdict + ` .* ` + name + `$`).MatchString(out.String()) {
			t.Errorf("%s is not told as %s", name, verdict)
		}
	}
	if found, err := filepath.Glob(filepath.Join(root, "found/testdata/fuzz/FuzzFound/*")); err != nil || len(found) != 1 {
		t.Errorf("the input is in %v, %v", found, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestRefused(t *testing.T) {
	empty := t.TempDir()
	for name, args := range map[string][]string{
		"no module": {"-root", empty}, "no time": {"-time", "0s"}, "no runs": {"-time", "0x"}, "odd runs": {"-time", "1.5x"}, "too much": {"-time", "1s", "x"}, "unknown flag": {"-tim", "1s"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, t.Output()); err == nil {
			t.Errorf("%s: it ran\n%s", name, out.String())
		}
	}
}

func TestFollow(t *testing.T) {
	said := strings.Join([]string{
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/2 completed",
		"fuzz: elapsed: 3s, execs: 325017 (108336/sec), new interesting: 11 (total: 202)",
		"fuzz: elapsed: 5s, execs: 400000 (10/sec), new interesting: 12 (total: 203)",
		strings.Repeat("x", 10_000),
		"    Failing input written to testdata/fuzz/FuzzX/0123",
	}, "\n")
	var r result
	var lines []string
	tail := r.follow(strings.NewReader(said), func(line string) { lines = append(lines, line) })
	if r.runs != 400000 || r.interesting != 12 || r.finding != "testdata/fuzz/FuzzX/0123" || r.verdict() != "FOUND" {
		t.Errorf("it understood %+v", r)
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "elapsed: 3s") {
		t.Errorf("it told %q", lines)
	}
	if len(tail) != 3 || len(tail[1]) > 510 {
		t.Errorf("it kept %d lines", len(tail))
	}
}
