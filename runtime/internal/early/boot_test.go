package early

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// call is a first start as gVisor's sandbox.createSandboxProcess asks for it.
func call(change func(argv []string) []string) []string {
	argv := append([]string{"runsc-sandbox", "--root=/proc/self/fd/4"}, ConfigFlags...)
	argv = append(argv, "boot", "--bundle=/b", "--gofer-mount-confs=erofs:memory", "--apply-caps=true", "--setup-root",
		"--total-memory", "4096", "--spec-fd=7", "--pass-fd=11:3", "sb-1")
	if change == nil {
		return argv
	}
	return change(argv)
}

func TestParseBoot(t *testing.T) {
	argv := call(nil)
	second, ok := parseBoot(argv)
	if !ok {
		t.Fatal("a first start is not known")
	}
	want := strings.NewReplacer("--apply-caps=true", "--apply-caps=false", "--setup-root", "--setup-root=false").Replace(strings.Join(argv, " "))
	if got := strings.Join(second, " "); got != want {
		t.Errorf("the second start is\n%s, want\n%s", got, want)
	}
	if _, ok := parseBoot(second); ok {
		t.Error("the second start is taken for a first one")
	}
	add := func(before string, flag ...string) func([]string) []string {
		return func(argv []string) []string { return slices.Insert(argv, slices.Index(argv, before), flag...) }
	}
	drop := func(flag string) func([]string) []string {
		return func(argv []string) []string {
			return slices.DeleteFunc(argv, func(a string) bool { return a == flag })
		}
	}
	for name, change := range map[string]func([]string) []string{
		"debug logs":          add("boot", "--debug=true"),
		"another platform":    add("boot", "--platform=kvm"),
		"a host's network":    add("boot", "--network=host"),
		"devices":             add("boot", "--nvproxy=true"),
		"a word before":       add("boot", "x"),
		"attached":            add("sb-1", "--attached"),
		"another user":        add("sb-1", "--uid=5"),
		"a user namespace":    add("sb-1", "--sync-userns-fd=9"),
		"an unmounter":        add("sb-1", "--proc-mount-sync-fd=9"),
		"no root":             drop("--setup-root"),
		"no capabilities":     drop("--apply-caps=true"),
		"another command":     func(a []string) []string { a[slices.Index(a, "boot")] = "gofer"; return a },
		"another program":     func(a []string) []string { a[0] = "runsc-gofer"; return a },
		"no command":          func([]string) []string { return []string{"runsc-sandbox"} },
		"nothing":             func([]string) []string { return nil },
		"product name chosen": add("sb-1", "--product-name=x"),
	} {
		if _, ok := parseBoot(call(change)); ok {
			t.Errorf("%s: taken for what is done here", name)
		}
	}
}

// A machine may have no /tmp, or a link there.
func TestFirstFolder(t *testing.T) {
	dir := t.TempDir()
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := firstFolder([]string{filepath.Join(dir, "none"), link, file, dir, "/"}); got != dir {
		t.Errorf("%q", got)
	}
	if got := firstFolder([]string{link}); got != "" {
		t.Errorf("a link is taken: %q", got)
	}
}

func TestParseUmount(t *testing.T) {
	if fd, dir, ok := parseUmount([]string{selfPath, "umount", "--sync-fd=3", "/proc"}); fd != 3 || dir != "/proc" || !ok {
		t.Errorf("%d, %q, %t", fd, dir, ok)
	}
	for _, argv := range [][]string{
		nil,
		{selfPath, "umount"},
		{selfPath, "umount", "/proc", "--sync-fd=3"},
		{selfPath, "umount", "--sync-fd=x", "/proc"},
		{selfPath, "umount", "--sync-fd=-1", "/proc"},
		{selfPath, "umount", "--sync-fd=3", "proc"},
		{selfPath, "umount", "--sync-fd=3", "/proc", "more"},
		{selfPath, "mount", "--sync-fd=3", "/proc"},
	} {
		if _, _, ok := parseUmount(argv); ok {
			t.Errorf("%q is taken for an unmounter", argv)
		}
	}
}
