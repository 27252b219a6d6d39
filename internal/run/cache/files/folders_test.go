package files_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brood/internal/run/cache/files"
	"brood/internal/run/cache/stamp"
)

// tree is a workspace whose folders are remembered, and a count of how often
// git was asked what is untracked.
type tree struct {
	t     *testing.T
	root  string
	index string // the file of folders
	log   string
}

func newTree(t *testing.T) *tree {
	t.Helper()
	dir := t.TempDir()
	w := &tree{t: t, root: fixture(t), index: filepath.Join(dir, "stamps", "folders"), log: filepath.Join(dir, "log")}
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "bin/git", "#!/bin/sh\necho \"$PWD:$@\" >>'"+w.log+"'\nexec '"+real+"' \"$@\"\n")
	if err := os.Chmod(filepath.Join(dir, "bin/git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("HOME", filepath.Join(dir, "home"))
	t.Setenv("XDG_CONFIG_HOME", "")
	return w
}

// settle lets so much time pass that a later change shows.
func (w *tree) settle() {
	w.t.Helper()
	probe := filepath.Join(filepath.Dir(w.log), "probe")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	st, err := stamp.Of(probe)
	if err != nil {
		w.t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for now := range tick.C {
		if st.Settled(now) {
			return
		}
	}
}

// loose lists what a snapshot has that git does not track, and whether git was
// asked for it.
func (w *tree) loose() (all []string, asked bool) {
	w.t.Helper()
	_ = os.Remove(w.log)
	s, err := files.Read(w.t.Context(), files.Config{Root: w.root, Folders: w.index})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range s.Files() {
		if !f.Tracked {
			all = append(all, f.Path)
		}
	}
	if err := s.Close(); err != nil {
		w.t.Fatal(err)
	}
	log, _ := os.ReadFile(w.log) // there is none when nothing was asked
	return all, strings.Contains(string(log), w.root+":-c safe.directory=* -c core.fsmonitor=false ls-files -z --others --exclude-standard\n")
}

// plain is loose without anything remembered.
func (w *tree) plain() []string {
	w.t.Helper()
	var all []string
	for _, f := range read(w.t, w.root).Files() {
		if !f.Tracked {
			all = append(all, f.Path)
		}
	}
	return all
}

// learn makes the index know how things stand now.
func (w *tree) learn() {
	w.t.Helper()
	w.settle()
	w.loose()
	if _, asked := w.loose(); asked {
		w.t.Fatal("git is asked although nothing changed")
	}
}

// same fails unless the remembered list is what git says now.
func (w *tree) same(what string, wantAsked bool) {
	w.t.Helper()
	got, asked := w.loose()
	if want := w.plain(); !slices.Equal(got, want) {
		w.t.Errorf("%s: untracked are %q, git says %q", what, got, want)
	}
	if asked != wantAsked {
		w.t.Errorf("%s: git was asked: %v", what, asked)
	}
}

func TestFoldersSpareGit(t *testing.T) {
	w := newTree(t)
	put(t, w.root, ".gitignore", "*.log\nout/\n")
	put(t, w.root, "packages/a/out/x", "x")
	put(t, w.root, "packages/a/dist/y", "y")
	put(t, w.root, "packages/a/z.log", "z")
	w.learn()
	w.same("nothing happened", false)

	put(t, w.root, "packages/a/src/x.ts.tmp", "edited")
	if err := os.Rename(filepath.Join(w.root, "packages/a/src/x.ts.tmp"), filepath.Join(w.root, "packages/a/src/x.ts")); err != nil {
		t.Fatal(err)
	}
	w.same("a file was replaced", false)
	put(t, w.root, "packages/a/out/more", "x")
	w.same("a file in an ignored folder", false)
	if err := os.Remove(filepath.Join(w.root, "packages/a/dist/y")); err != nil {
		t.Fatal(err)
	}
	w.same("an untracked file went", false)
	put(t, w.root, "packages/a/dist/y", "again")
	w.same("and came back", false)
	put(t, w.root, "packages/a/z.log", "zz")
	w.same("an ignored file changed", false)
	git(t, w.root, "status")
	w.same("git wrote its index", false)
}

// Each of these changes what git lists, or may.
func TestFoldersAskGitAgain(t *testing.T) {
	for name, change := range map[string]func(w *tree){
		"new file":            func(w *tree) { put(w.t, w.root, "packages/a/src/new.ts", "n") },
		"new file at the top": func(w *tree) { put(w.t, w.root, "new", "n") },
		"new folder":          func(w *tree) { put(w.t, w.root, "packages/c/deep/er/n", "n") },
		"file in an empty folder": func(w *tree) {
			put(w.t, w.root, "empty/n", "n")
		},
		"rules changed":     func(w *tree) { put(w.t, w.root, ".gitignore", "dist/\n") },
		"rules went":        func(w *tree) { _ = os.Remove(filepath.Join(w.root, ".gitignore")) },
		"rules in a folder": func(w *tree) { put(w.t, w.root, "packages/a/.gitignore", "dist/\n") },
		"rules of the repo": func(w *tree) { put(w.t, w.root, ".git/info/exclude", "dist/\n") },
		"rules of the user": func(w *tree) { put(w.t, os.Getenv("HOME"), ".config/git/ignore", "dist/\n") },
		"configuration": func(w *tree) {
			put(w.t, os.Getenv("HOME"), ".gitconfig", "[core]\nexcludesfile=~/x\n")
			put(w.t, os.Getenv("HOME"), "x", "dist/\n")
		},
		"file made a folder": func(w *tree) {
			_ = os.Remove(filepath.Join(w.root, "packages/a/dist/y"))
			put(w.t, w.root, "packages/a/dist/y/z", "n")
		},
		"ignored name, a folder": func(w *tree) {
			_ = os.Remove(filepath.Join(w.root, "packages/a/out"))
			put(w.t, w.root, "packages/a/out/z", "n")
		},
		"tracked":         func(w *tree) { git(w.t, w.root, "add", "packages/a/dist/y") },
		"no more tracked": func(w *tree) { git(w.t, w.root, "rm", "-q", "--cached", "packages/a/src/x.ts") },
		"a repository":    func(w *tree) { git(w.t, w.root, "init", "-q", "packages/a/dist") },
		"environment": func(w *tree) {
			w.t.Setenv("GIT_CONFIG_COUNT", "1")
			w.t.Setenv("GIT_CONFIG_KEY_0", "core.excludesfile")
			w.t.Setenv("GIT_CONFIG_VALUE_0", put2(w.t, "dist/\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTree(t)
			put(t, w.root, ".gitignore", "*.log\nout\n")
			put(t, w.root, "packages/a/out", "a file that is ignored")
			put(t, w.root, "packages/a/dist/y", "y")
			if err := os.Mkdir(filepath.Join(w.root, "empty"), 0o755); err != nil {
				t.Fatal(err)
			}
			w.learn()
			change(w)
			w.same(name, true)
		})
	}
}

// put2 makes a file somewhere.
func put2(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "f", text)
	return filepath.Join(dir, "f")
}

// Whether a folder is a repository of its own only git knows, and it may change
// without the folder: such workspaces ask every time.
func TestFoldersAndRepositoriesInside(t *testing.T) {
	w := newTree(t)
	inner := filepath.Join(w.root, "vendor/inner")
	put(t, inner, "sub/a", "a")
	git(t, inner, "init", "-q")
	git(t, inner, "add", "-A")
	git(t, inner, "commit", "-q", "-m", "a")
	w.settle()
	w.same("first", true)
	w.same("again", true)
	if err := os.Rename(filepath.Join(inner, ".git/HEAD"), filepath.Join(inner, ".git/tail")); err != nil {
		t.Fatal(err)
	}
	w.same("the inner one is none any more", true)
}

// Rules that git reads from its index are in no file that could be watched.
func TestFoldersAndRulesInTheIndex(t *testing.T) {
	w := newTree(t)
	put(t, w.root, ".gitignore", "*.log\n")
	git(t, w.root, "add", ".gitignore")
	git(t, w.root, "commit", "-q", "-m", "rules")
	put(t, w.root, "junk.log", "1")
	if err := os.Remove(filepath.Join(w.root, ".gitignore")); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.same("without the file", true)
	git(t, w.root, "update-index", "--skip-worktree", ".gitignore")
	w.same("from the index", true)
}

// The repository that decides may be another one without a change in the
// workspace's folders.
func TestFoldersOfAnotherRepository(t *testing.T) {
	outer := newTree(t)
	put(t, outer.root, ".gitignore", "*.log\n")
	git(t, outer.root, "add", ".gitignore")
	git(t, outer.root, "commit", "-q", "-m", "rules")
	dir := t.TempDir()
	git(t, outer.root, "worktree", "add", "-q", filepath.Join(dir, "o"))
	w := *outer
	w.root = filepath.Join(dir, "o", "w")
	put(t, w.root, "junk.log", "1")
	put(t, w.root, "src/x", "1")
	w.learn()
	git(t, w.root, "init", "-q")
	w.same("a repository of its own", true)
}

// A workspace below its repository's top is led to the same configuration.
func TestFoldersBelowTheTop(t *testing.T) {
	outer := newTree(t)
	put(t, outer.root, "shared.config", "[user]\nname=x\n")
	git(t, outer.root, "config", "include.path", "../shared.config")
	w := *outer
	w.root = filepath.Join(outer.root, "packages/a")
	put(t, w.root, "junk.log", "1")
	w.learn()
	put(t, outer.root, "shared.config", "[core]\nexcludesfile="+put2(t, "*.log\n")+"\n")
	w.same("an included file", true)
}

// Configuration that has nothing to say yet may come to.
func TestFoldersAndEmptyConfiguration(t *testing.T) {
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		w := newTree(t)
		put(t, w.root, "junk.log", "1")
		file := put2(t, "")
		if name == "GIT_CONFIG_SYSTEM" {
			file += "-that-is-not-there"
		}
		t.Setenv(name, file)
		w.learn()
		if err := os.WriteFile(file, []byte("[core]\nexcludesfile="+put2(t, "*.log\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.same(name, true)
	}
}

// What git lists while its index changes is not remembered.
func TestFoldersWhileTheIndexChanges(t *testing.T) {
	w := newTree(t)
	put(t, w.root, "new", "1")
	w.settle()
	s, err := files.Read(t.Context(), files.Config{Root: w.root, Folders: w.index})
	if err != nil {
		t.Fatal(err)
	}
	git(t, w.root, "add", "new") // the same as between the reading of the index and of the folders
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	git(t, w.root, "reset", "-q")
	if got, _ := w.loose(); !slices.Equal(got, w.plain()) { // whether git was asked depends on who was faster
		t.Errorf("untracked are %q, git says %q", got, w.plain())
	}
}

func TestDamagedFoldersAreNone(t *testing.T) {
	w := newTree(t)
	put(t, w.root, "packages/a/dist/y", "y")
	w.learn()
	b, err := os.ReadFile(w.index)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		bad := slices.Clone(b)
		bad[i*len(b)/12] ^= 1
		if i == 11 {
			bad = bad[:len(bad)/2]
		}
		if err := os.WriteFile(w.index, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		w.same("damaged", true)
	}
}

// Whatever happens to a tree, what is remembered leads to what git says.
func TestFoldersAgreeWithGit(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newTree(t)
			r := rand.New(rand.NewPCG(seed, 3))
			spared := 0
			for step := range 50 {
				for range r.IntN(3) {
					w.disturb(r)
				}
				if r.IntN(2) == 0 {
					w.settle()
				}
				got, asked := w.loose()
				if want := w.plain(); !slices.Equal(got, want) {
					t.Fatalf("step %d: untracked are %q, git says %q", step, got, want)
				}
				if !asked {
					spared++
				}
			}
			if spared < 6 {
				t.Errorf("git was spared %d times of 50", spared)
			}
		})
	}
}

// disturb does something to the tree.
func (w *tree) disturb(r *rand.Rand) {
	dirs := []string{"", "packages/a", "packages/a/src", "packages/b", "packages/c", "lib", "lib/dist", "dist", "lib/dist/deep"}
	names := []string{"a", "b.log", "c.ts", "dist", "keep.log"}
	name := filepath.Join(dirs[r.IntN(len(dirs))], names[r.IntN(len(names))])
	at := filepath.Join(w.root, name)
	switch r.IntN(10) {
	case 0, 1, 2:
		if os.MkdirAll(filepath.Dir(at), 0o755) == nil {
			_ = os.WriteFile(at, []byte(fmt.Sprint(r.IntN(3))), 0o644) // a folder may be there
		}
	case 3:
		_ = os.RemoveAll(at)
	case 4:
		_ = os.RemoveAll(filepath.Dir(at) + "/dist")
	case 5:
		rules := []string{"*.log\n", "dist/\n", "dist\n", "*.log\n!keep.log\n", "/lib\n", ""}
		dir := dirs[r.IntN(len(dirs))]
		if os.MkdirAll(filepath.Join(w.root, dir), 0o755) == nil {
			put(w.t, w.root, filepath.Join(dir, ".gitignore"), rules[r.IntN(len(rules))])
		}
	case 6:
		git(w.t, w.root, "add", "-A")
	case 7:
		git(w.t, w.root, "rm", "-r", "-q", "-f", "--cached", "--ignore-unmatch", name)
	case 8:
		_ = os.MkdirAll(at, 0o755)
	case 9:
		_ = os.Rename(at, at+"2")
		_ = os.Rename(at+"2", at)
	}
}
