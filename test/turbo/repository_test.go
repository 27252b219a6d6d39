package turbo_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a git repository in which both are asked.
type repository struct {
	dir, home string
	at        string // where the user stands, relative to dir
	env       []string
}

func newRepository(t testing.TB, manager string, files map[string]string) *repository {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &repository{dir: dir, home: t.TempDir()}
	for name, text := range files {
		r.write(t, name, text)
	}
	r.manage(t, manager)
	r.git(t, "init", "-q", "-b", "main")
	r.commit(t)
	return r
}

func (r *repository) write(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *repository) git(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (r *repository) commit(t testing.TB) {
	t.Helper()
	r.git(t, "add", "-A")
	r.git(t, "commit", "-q", "--allow-empty", "-m", "x")
}

// managers are the package managers with what each leaves in a repository.
var managers = map[string]struct{ field, lockfile, locked string }{
	"npm":    {"npm@11.0.0", "package-lock.json", `{"lockfileVersion":3,"packages":{}}`},
	"pnpm8":  {"pnpm@8.15.0", "pnpm-lock.yaml", "lockfileVersion: '6.0'\n"},
	"pnpm":   {"pnpm@10.0.0", "pnpm-lock.yaml", "lockfileVersion: '9.0'\n"},
	"yarn":   {"yarn@1.22.22", "yarn.lock", "# yarn lockfile v1\n"},
	"berry":  {"yarn@4.1.0", "yarn.lock", "__metadata:\n  version: 8\n"},
	"bun":    {"bun@1.2.0", "bun.lock", `{"lockfileVersion":1,"workspaces":{},"packages":{}}`},
	"by-npm": {"", "package-lock.json", `{"lockfileVersion":3,"packages":{}}`},
}

// manage makes the repository one of that package manager.
func (r *repository) manage(t testing.TB, manager string) {
	t.Helper()
	m, ok := managers[manager]
	if !ok {
		t.Fatalf("no manager %q", manager)
	}
	raw, err := os.ReadFile(filepath.Join(r.dir, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]any
	if err := json.Unmarshal(raw, &top); err != nil {
		t.Fatal(err)
	}
	if m.field != "" {
		top["packageManager"] = m.field
	}
	if globs, ok := top["workspaces"].([]any); ok && strings.HasPrefix(manager, "pnpm") {
		var text strings.Builder
		text.WriteString("packages:\n")
		for _, g := range globs {
			fmt.Fprintf(&text, "  - %q\n", g)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "pnpm-workspace.yaml")); err != nil {
			r.write(t, "pnpm-workspace.yaml", text.String())
		}
		delete(top, "workspaces")
	}
	raw, err = json.MarshalIndent(top, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "package.json", string(raw))
	r.write(t, m.lockfile, m.locked)
}
