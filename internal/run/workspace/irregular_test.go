package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

// TestNoFile: what stands where a file of the workspace belongs and is none is
// refused by name, and a pipe is not waited for.
func TestNoFile(t *testing.T) {
	const (
		npm   = "-- package.json --\n{\"workspaces\":[\"packages/*\"]}\n-- packages/a/package.json --\n{\"name\":\"a\"}\n"
		turbo = npm + "-- turbo.json --\n{\"tasks\":{}}\n"
		pnpm  = "-- package.json --\n{}\n-- pnpm-workspace.yaml --\npackages: [packages/*]\n-- packages/a/package.json --\n{\"name\":\"a\"}\n"
		brood = "-- brood.yaml --\nprojects: [packages/*]\n-- packages/a/package.json --\n{\"name\":\"a\"}\n"
	)
	for _, c := range []struct{ archive, name string }{
		{turbo, "turbo.json"}, {turbo, "package.json"}, {turbo, "packages/a/package.json"}, {turbo, "packages/a/turbo.json"}, {turbo, "package-lock.json"},
		{npm, "package.json"}, {npm, "packages/a/package.json"}, {npm, "brood.yaml"}, {npm, "turbo.json"}, {npm, "yarn.lock"},
		{pnpm, "pnpm-workspace.yaml"}, {pnpm, "package.json"}, {pnpm, "pnpm-lock.yaml"}, {pnpm + "-- pnpm-lock.yaml --\n", ".npmrc"},
		{brood, "brood.yaml"}, {brood, "packages/a/brood.yaml"}, {brood, "packages/a/package.json"},
	} {
		for kind, put := range map[string]func(path string) error{
			"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"link":   func(path string) error { return os.Symlink("nowhere", path) },
		} {
			dir := tree(t, c.archive)
			path := filepath.Join(dir, c.name)
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			_, err := workspace.Open(dir)
			if errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(errs.Text(err), c.name+" is a "+kind) {
				t.Errorf("%s: %s as a %s: %v", c.archive, c.name, kind, err)
			}
		}
	}
}
