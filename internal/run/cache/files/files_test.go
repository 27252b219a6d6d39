package files_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/errs"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/stamp"
)

func TestMain(m *testing.M) {
	if root := os.Getenv("FILES_TEST_CHILD"); root != "" {
		s, err := files.Read(context.Background(), files.Config{Root: root})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Print(show(s))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// git runs git in dir as nobody in particular.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// age makes every file older than the index may be racy about.
func age(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(p, "/.git/") {
			return os.Chtimes(p, old, old)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, root string) *files.Snapshot {
	t.Helper()
	s, err := files.Read(t.Context(), files.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// show lists a snapshot as lines.
func show(s *files.Snapshot) string {
	var b strings.Builder
	for _, f := range s.Files() {
		b.WriteString(string(f.Mode) + " " + f.ID + " " + f.Path + "\n")
	}
	return b.String()
}

// lsFiles is what git itself says of a clean tree.
func lsFiles(t *testing.T, root string) string {
	var b strings.Builder
	for _, e := range strings.Split(strings.TrimSuffix(git(t, root, "ls-files", "-z", "-s"), "\x00"), "\x00") {
		head, name, _ := strings.Cut(e, "\t")
		f := strings.Fields(head)
		b.WriteString(f[0] + " " + f[1] + " " + name + "\n")
	}
	return b.String()
}

func fixture(t *testing.T) string {
	root := t.TempDir()
	git(t, root, "init", "-q", "-b", "main")
	put(t, root, "package.json", "{}")
	put(t, root, "packages/a/src/x.ts", "x")
	put(t, root, "packages/a/package.json", `{"name":"a"}`)
	put(t, root, "packages/b/run.sh", "#!/bin/sh\n")
	put(t, root, "odd/na\xffme \"q\" ünï\nx", "odd")
	put(t, root, ".gitignore", "dist/\n*.log\n")
	if err := os.Chmod(filepath.Join(root, "packages/b/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../a/src", filepath.Join(root, "packages/b/link")); err != nil {
		t.Fatal(err)
	}
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "one")
	return root
}

func TestIDsAreGits(t *testing.T) {
	root := fixture(t)
	want := lsFiles(t, root)
	if got := show(read(t, root)); got != want {
		t.Errorf("just written:\n%s\nwant\n%s", got, want)
	}
	age(t, root)
	if got := show(read(t, root)); got != want {
		t.Errorf("touched:\n%s\nwant\n%s", got, want)
	}
	for _, version := range []string{"2", "3", "4"} {
		git(t, root, "update-index", "--index-version", version)
		git(t, root, "update-index", "--refresh")
		if got := show(read(t, root)); got != want {
			t.Errorf("index version %s:\n%s\nwant\n%s", version, got, want)
		}
	}
	git(t, root, "update-index", "--split-index")
	if got := show(read(t, root)); got != want {
		t.Errorf("split index:\n%s\nwant\n%s", got, want)
	}
	// Another user's git refuses the tree of this one; keys must not care.
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, root, "clone", "-q", root, clone)
	if got := show(read(t, clone)); got != want {
		t.Errorf("clone:\n%s\nwant\n%s", got, want)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git(t, root, "worktree", "add", "-q", tree)
	if got := show(read(t, tree)); got != want {
		t.Errorf("worktree:\n%s\nwant\n%s", got, want)
	}
}

func TestEditsThatStatDoesNotShow(t *testing.T) {
	root := fixture(t)
	name := filepath.Join(root, "packages/a/src/x.ts")
	before, _ := read(t, root).Find("packages/a/src/x.ts")
	// Same size, same second, right after the index was written: git's racy case.
	for range 20 {
		put(t, root, "packages/a/src/x.ts", "y")
		git(t, root, "add", "packages/a/src/x.ts")
		put(t, root, "packages/a/src/x.ts", "z")
		got, _ := read(t, root).Find("packages/a/src/x.ts")
		if want := git(t, root, "hash-object", name); got.ID != want {
			t.Fatalf("id %s, want %s", got.ID, want)
		}
	}
	put(t, root, "packages/a/src/x.ts", "x")
	if got, _ := read(t, root).Find("packages/a/src/x.ts"); got.ID != before.ID {
		t.Error("the same content has another id")
	}
}

func TestWhatIsAFile(t *testing.T) {
	root := fixture(t)
	put(t, root, "packages/a/new.ts", "new")
	put(t, root, "packages/a/dist/out.js", "out")
	put(t, root, "packages/a/x.log", "log")
	put(t, root, "packages/a/intent.ts", "later")
	put(t, root, "packages/a/empty.ts", "")
	put(t, root, ".brood/stage/1", "no")
	git(t, root, "add", "-N", "packages/a/intent.ts", "packages/a/empty.ts")
	if err := os.Remove(filepath.Join(root, "packages/b/run.sh")); err != nil {
		t.Fatal(err)
	}
	s := read(t, root)
	for name, want := range map[string]bool{
		"packages/a/new.ts": true, "packages/a/intent.ts": true, "packages/a/empty.ts": true, "packages/b/link": true,
		"packages/a/dist/out.js": false, "packages/a/x.log": false, "packages/b/run.sh": false, ".brood/stage/1": false,
	} {
		f, ok := s.Find(name)
		if ok != want {
			t.Errorf("%s: found %v, want %v", name, ok, want)
		}
		if ok && f.Mode != files.Link && f.ID != git(t, root, "hash-object", filepath.Join(root, name)) {
			t.Errorf("%s has id %s", name, f.ID)
		}
	}
	if n := len(s.Under("packages/a")); n != 5 {
		t.Errorf("%d files in packages/a", n)
	}
	if !s.Loose("packages/a") || s.Loose("packages/b") || s.Tracked("packages/a/new.ts") {
		t.Error("which files git tracks")
	}
	// A workspace below the repository's top.
	sub := read(t, filepath.Join(root, "packages/a"))
	if f, ok := sub.Find("src/x.ts"); !ok || f.ID != git(t, root, "hash-object", "packages/a/src/x.ts") || len(sub.Files()) != 5 {
		t.Errorf("below the top: %v", show(sub))
	}
}

func TestLineEndsDoNotShow(t *testing.T) {
	root := fixture(t)
	put(t, root, ".gitattributes", "*.txt text\n")
	put(t, root, "a.txt", "one\r\ntwo\r\n")
	put(t, root, "b.bin", "one\r\ntwo\r\n")
	put(t, root, "odd \"\n.txt", "odd\r\n")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "two")
	want := lsFiles(t, root)
	if got := show(read(t, root)); got != want {
		t.Errorf("racy:\n%s\nwant\n%s", got, want)
	}
	age(t, root)
	if got := show(read(t, root)); got != want {
		t.Errorf("touched:\n%s\nwant\n%s", got, want)
	}
	git(t, root, "update-index", "--refresh")
	if got := show(read(t, root)); got != want {
		t.Errorf("from the index:\n%s\nwant\n%s", got, want)
	}
}

// TestRewrittenFilesCountByTheirBytes: what git would record of a file is not
// what a task reads where a filter lies between.
func TestRewrittenFilesCountByTheirBytes(t *testing.T) {
	for name, where := range map[string]func(root, attributes string){
		"tree":      func(root, text string) { put(t, root, ".gitattributes", text) },
		"untracked": func(root, text string) { put(t, root, "packages/.gitattributes", text) },
		"macro": func(root, text string) {
			put(t, root, ".gitattributes", "[attr]own filter=strip ident\n")
			put(t, root, "packages/.gitattributes", "*.src own\n")
		},
		"info": func(root, text string) { put(t, root, ".git/info/attributes", text) },
		"configured": func(root, text string) {
			put(t, root, ".git/mine", text)
			git(t, root, "config", "core.attributesFile", filepath.Join(root, ".git/mine"))
		},
		"user": func(_, text string) {
			home := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", home)
			put(t, home, "git/attributes", text)
		},
		"left out of the tree": func(root, text string) {
			put(t, root, ".gitattributes", text)
			git(t, root, "add", ".gitattributes")
			if err := os.Remove(filepath.Join(root, ".gitattributes")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := fixture(t)
			git(t, root, "config", "filter.strip.clean", "sed 's/SECRET.*//'")
			where(root, "*.src filter=strip\n*.id ident\n")
			if name != "macro" {
				put(t, root, "packages/x.id", "$Id: one$")
			}
			put(t, root, "packages/x.src", "a SECRET1\r\n")
			git(t, root, "add", "packages/x.src")
			git(t, root, "commit", "-qm", "two")
			put(t, root, "packages/loose.src", "a SECRET1\n")
			check := func(list ...string) {
				t.Helper()
				s := read(t, root)
				for _, f := range list {
					if got, ok := s.Find(f); !ok || got.ID != git(t, root, "hash-object", "--no-filters", f) {
						t.Errorf("%s has id %s", f, got.ID)
					}
				}
				if f, _ := s.Find("package.json"); f.ID != git(t, root, "hash-object", "package.json") {
					t.Errorf("package.json has id %s", f.ID)
				}
			}
			check("packages/x.src", "packages/loose.src")
			age(t, root)
			git(t, root, "update-index", "-q", "--refresh")
			check("packages/x.src", "packages/loose.src") // though the index has it
			put(t, root, "packages/x.src", "a SECRET2222\n")
			check("packages/x.src")
			if name != "macro" {
				check("packages/x.id")
			}
		})
	}
}

// TestStampsOfBytesStayApart: an attribute that comes or goes does not find the
// id that the other way of looking left.
func TestStampsOfBytesStayApart(t *testing.T) {
	root := fixture(t)
	put(t, root, "a.txt", "one\r\n")
	age(t, root)
	table := stamp.Load(filepath.Join(t.TempDir(), "stamps"))
	for _, c := range []struct{ attributes, how string }{
		{"*.txt text filter=x\n", "--no-filters"}, {"*.txt text\n", "--path=a.txt"}, {"*.txt text filter=x\n", "--no-filters"},
	} {
		put(t, root, ".gitattributes", c.attributes)
		for range 2 {
			s, err := files.Read(t.Context(), files.Config{Root: root, Stamps: table})
			if err != nil {
				t.Fatal(err)
			}
			if f, _ := s.Find("a.txt"); f.ID != git(t, root, "hash-object", c.how, "a.txt") {
				t.Errorf("%q: id %s", c.attributes, f.ID)
			}
			s.Close()
		}
	}
}

func TestPointersAreToldFromFiles(t *testing.T) {
	root := fixture(t)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12345\n"
	git(t, root, "config", "filter.lfs.clean", "printf '"+pointer+"'")
	put(t, root, "big.bin", pointer)
	put(t, root, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "pointer")
	unfetched, _ := read(t, root).Find("big.bin")
	put(t, root, "big.bin", "the file itself")
	if f, _ := read(t, root).Find("big.bin"); f.ID == unfetched.ID {
		t.Error("a pointer counts as the file that it stands for")
	}
}

func TestSubmodules(t *testing.T) {
	inner, root := fixture(t), fixture(t)
	git(t, root, "submodule", "--quiet", "add", inner, "vendor/inner")
	git(t, root, "commit", "-qm", "two")
	s := read(t, root)
	if f, ok := s.Find("vendor/inner/packages/a/src/x.ts"); !ok || !f.Tracked {
		t.Errorf("the submodule's files are not there:\n%s", show(s))
	}
	put(t, root, "vendor/inner/packages/a/src/x.ts", "edited")
	if show(read(t, root)) == show(s) {
		t.Error("an edit inside a submodule does not show")
	}
	bare := filepath.Join(t.TempDir(), "clone")
	git(t, root, "clone", "-q", root, bare)
	if f, ok := read(t, bare).Find("vendor/inner"); !ok || f.Mode != files.Submodule || f.ID != git(t, inner, "rev-parse", "HEAD") {
		t.Error("a submodule that is not checked out must count by its commit")
	}
	put(t, root, "own/.keep", "")
	git(t, filepath.Join(root, "own"), "init", "-q")
	put(t, root, "own/x", "x")
	if _, ok := read(t, root).Find("own/x"); !ok {
		t.Error("a repository inside that git does not know is not read")
	}
}

func TestSparse(t *testing.T) {
	root := fixture(t)
	age(t, root)
	git(t, root, "update-index", "--refresh")
	git(t, root, "sparse-checkout", "set", "--cone", "--sparse-index", "packages/a")
	s := read(t, root)
	if _, ok := s.Find("packages/b/run.sh"); ok {
		t.Error("a file that is left out is an input")
	}
	if f, ok := s.Find("packages/a/src/x.ts"); !ok || f.ID != git(t, root, "hash-object", "packages/a/src/x.ts") {
		t.Errorf("sparse index:\n%s", show(s))
	}
}

func TestSHA256Repository(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q", "--object-format=sha256")
	put(t, root, "x", "x")
	put(t, root, "y", "y")
	git(t, root, "add", "x")
	git(t, root, "commit", "-qm", "one")
	for range 2 {
		for _, name := range []string{"x", "y"} {
			if f, _ := read(t, root).Find(name); f.ID != git(t, root, "hash-object", name) {
				t.Errorf("%s: %s", name, f.ID)
			}
		}
		age(t, root)
		git(t, root, "update-index", "--refresh")
	}
}

func TestWithoutGit(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/x.ts", "x")
	put(t, root, "a/.gitignore", "/dist\n*.log\n!keep.log\nsub/deep\n")
	for _, name := range []string{"a/dist/x", "a/b/y.log", "a/b/keep.log", "a/b/dist", "a/node_modules/m/x", "node_modules/y", "a/sub/deep/x", "a/z/sub/deep"} {
		put(t, root, name, name)
	}
	s := read(t, root)
	var got []string
	for _, f := range s.Files() {
		got = append(got, f.Path)
	}
	want := "a/.gitignore a/b/dist a/b/keep.log a/x.ts a/z/sub/deep"
	if strings.Join(got, " ") != want {
		t.Errorf("files %v, want %s", got, want)
	}
	repo := fixture(t)
	put(t, repo, "x", "x")
	a, _ := read(t, repo).Find("x")
	if b, _ := s.Find("a/x.ts"); a.ID != b.ID {
		t.Error("the same content must have the same id with and without git")
	}
}

func TestChanges(t *testing.T) {
	root := fixture(t)
	age(t, root)
	git(t, root, "update-index", "--refresh")
	s := read(t, root)
	none := func(string, bool) bool { return false }
	changed := func() string {
		t.Helper()
		name, err := s.Changed(t.Context(), s.Under("packages"), files.During{})
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			return name
		}
		name, err = s.Appeared(files.Search{Dir: "packages", Skip: none})
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := changed(); got != "" {
		t.Errorf("nothing changed but %s", got)
	}
	age(t, root) // times alone
	put(t, root, "packages/a/dist/x", "ignored")
	put(t, root, "packages/a/node_modules/x", "never")
	put(t, root, "packages/a/x.log", "ignored")
	if got := changed(); got != "" {
		t.Errorf("no input changed but %s", got)
	}
	put(t, root, "packages/c/deep/x", "new")
	if got := changed(); got != "packages/c/deep/x" {
		t.Errorf("changed: %q", got)
	}
	if err := os.RemoveAll(filepath.Join(root, "packages/c")); err != nil {
		t.Fatal(err)
	}
	put(t, root, "packages/a/src/x.ts", "y")
	if got := changed(); got != "packages/a/src/x.ts" {
		t.Errorf("changed: %q", got)
	}
	put(t, root, "packages/a/src/x.ts", "x") // back again
	if got := changed(); got != "" {
		t.Errorf("content is as it was, but %s", got)
	}
	if err := os.Chmod(filepath.Join(root, "packages/a/src/x.ts"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := changed(); got != "packages/a/src/x.ts" {
		t.Errorf("mode: %q", got)
	}
}

func TestStampsSpareReading(t *testing.T) {
	root := fixture(t)
	put(t, root, "loose.ts", "loose")
	age(t, root)
	file := filepath.Join(t.TempDir(), "stamps")
	table := stamp.Load(file)
	take := func(table *stamp.Table) string {
		s, err := files.Read(t.Context(), files.Config{Root: root, Stamps: table})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return show(s)
	}
	want := take(table)
	if err := table.Save(root); err != nil {
		t.Fatal(err)
	}
	if got := take(stamp.Load(file)); got != want {
		t.Errorf("with stamps:\n%s\nwant\n%s", got, want)
	}
	put(t, root, "loose.ts", "LOOSE")
	if got := take(stamp.Load(file)); got == want {
		t.Error("a stamp hides a change")
	}
	if err := os.WriteFile(file, []byte("brood stamps 1\nrubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := take(stamp.Load(file)); got == want {
		t.Error("a damaged table hides a change")
	}
}

// TestAnotherUserSeesTheSame reads the tree of this user as another one, whose
// git would refuse it.
func TestAnotherUserSeesTheSame(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, needs root: another user cannot be played")
	}
	dir, err := os.MkdirTemp("", "brood-files-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root := filepath.Join(dir, "root")
	git(t, dir, "clone", "-q", fixture(t), root)
	put(t, root, "loose.ts", "loose")
	put(t, root, "packages/a/src/x.ts", "edited")
	self, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "self"), self, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []uint32{0, 65534} {
		c := exec.Command(filepath.Join(dir, "self"))
		c.Env = append(os.Environ(), "FILES_TEST_CHILD="+root, "HOME="+dir)
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := c.CombinedOutput()
		if want := show(read(t, root)); err != nil || string(out) != want {
			t.Errorf("user %d: %v\n%s\nwant\n%s", uid, err, out, want)
		}
	}
}

// TestNamed: ignored files are inputs where globs name them, and nowhere else.
func TestNamed(t *testing.T) {
	root := fixture(t)
	for _, name := range []string{"a/.env", "a/dist/x.ts", "a/dist/deep/y.ts", "a/x.log", "a/node_modules/m/z.ts", "a/src/w.log", "a/src/v.ts"} {
		put(t, root, "packages/"+name, name)
	}
	put(t, root, ".gitignore", "dist/\n*.log\n.env*\n")
	s := read(t, root)
	for globs, want := range map[string]string{
		".env*":                  ".env",
		"**/*.ts":                "dist/deep/y.ts dist/x.ts",
		"**/*.ts !dist/deep/**":  "dist/x.ts",
		"src/**":                 "",
		"**":                     "",
		"dist/**":                "dist/deep/y.ts dist/x.ts",
		"dist/*":                 "dist/x.ts",
		"src/*.log":              "src/w.log",
		"node_modules/m/*.ts":    "node_modules/m/z.ts",
		"/**/.env":               ".env",
		"/**/x.ts":               "", // it does not search ignored folders everywhere
		"nothing/** nor/this.ts": "",
	} {
		set, err := glob.New("packages/a", strings.Fields(globs))
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.Named(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range found {
			names = append(names, strings.TrimPrefix(f.Path, "packages/a/"))
			if f.ID != git(t, root, "hash-object", f.Path) {
				t.Errorf("%s has id %s", f.Path, f.ID)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", globs, got, want)
		}
	}
}

// TestPipesAreNotWaitedFor: what git keeps for itself, and its rules, may be
// something else than a file.
func TestPipesAreNotWaitedFor(t *testing.T) {
	pipe := func(path string) {
		t.Helper()
		_ = os.Remove(path)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index := fixture(t)
	pipe(filepath.Join(index, ".git/index"))
	if _, err := files.Read(t.Context(), files.Config{Root: index}); !errs.Is(err, errs.InvalidArgument) || !strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("as index: %v", err)
	}
	rules := t.TempDir()
	put(t, rules, "a/x", "x")
	pipe(filepath.Join(rules, "a/.gitignore"))
	if _, err := files.Read(t.Context(), files.Config{Root: rules}); !errs.Is(err, errs.InvalidArgument) || !strings.Contains(err.Error(), "a/.gitignore is a pipe") {
		t.Errorf("as rules: %v", err)
	}
}
