package fork_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"brood/test/live"
)

// A mount that is not to be written is not, in forks neither; what is written
// to another stays in the sandbox.
func TestMountsThatAreReadOnly(t *testing.T) {
	src, out, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "one")
	for _, f := range []string{filepath.Join(src, "a"), filepath.Join(out, "b"), file} {
		if err := os.WriteFile(f, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(src, "out"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := live.Start(t, live.Options{})
	d.Brood(0, "sb", "create", "--name", "src", "--mount", src+":/mnt/src:ro", "--mount", out+":/mnt/src/out", "--mount", file+":/mnt/one:ro", "--", "sleep", "1000")
	d.Brood(0, "sb", "fork", "src", "copy")
	for _, name := range []string{"src", "copy"} {
		for _, script := range []string{"echo x > /mnt/src/a", "echo x > /mnt/src/new", "rm /mnt/src/a", "echo x > /mnt/one"} {
			if said, code := d.Exec(name, "sh", "-c", script); code == 0 {
				t.Errorf("%s did %q: %s", name, script, said)
			}
		}
		if got := d.Output(name, "sh", "-c", "echo "+name+" > /mnt/src/out/b; cat /mnt/src/a /mnt/src/out/b /mnt/one"); got != "before\n"+name+"\nbefore" {
			t.Errorf("%s reads %q", name, got)
		}
	}
	for _, f := range []string{filepath.Join(src, "a"), filepath.Join(out, "b"), file} {
		if b, err := os.ReadFile(f); err != nil || string(b) != "before\n" {
			t.Errorf("on this machine %s is %q, %v", f, b, err)
		}
	}
}

// Sandboxes of several folders are there at once, also of one that was moved
// away and made again, and each has the files of its own.
func TestFoldersBesideEachOther(t *testing.T) {
	d, dir := live.Start(t, live.Options{}), t.TempDir()
	made := func(name, content string) string {
		t.Helper()
		folder := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "f"), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	one := made("one", "first")
	d.Brood(0, "sb", "create", one, "--name", "a")
	d.Brood(0, "sb", "create", made("two", "second"), "--name", "b")
	if err := os.Rename(one, one+"-before"); err != nil {
		t.Fatal(err)
	}
	d.Brood(0, "sb", "create", made("one", "third"), "--name", "c")
	d.Brood(0, "sb", "fork", "a", "copy")
	for name, want := range map[string]string{"a": "first", "b": "second", "c": "third", "copy": "first"} {
		d.Brood(0, "sb", "cp", name+":/f", filepath.Join(dir, name))
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v", name, b, err)
		}
	}
}
