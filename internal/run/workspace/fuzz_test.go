package workspace

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// wrong: what a parser refuses is the user's to mend, and never a defect of
// ours.
func wrong(t *testing.T, err error) {
	t.Helper()
	if err != nil && errs.CodeOf(err) != errs.InvalidArgument {
		t.Errorf("code %v: %v", errs.CodeOf(err), err)
	}
}

func FuzzTurbo(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"tasks":{"build":{"dependsOn":["^build","a#b","//#c"],"inputs":["$TURBO_DEFAULT$","!x",{"mode":"jit","globs":["g"]}],"outputs":["d/**"],"env":["A"]}}}`,
		`{"extends":["//"],"tasks":{"build":{"extends":false,"with":["x"]}}} // c`, `{"tasks":{"a":{"cache":false,},},/* */}`, "\xef\xbb\xbf{}", `{"a":1,"a":2}`,
		`{"futureFlags":{"globalConfiguration":true},"global":{"inputs":["x"]}}`, `{"tasks":{"a":{"interactive":true}}}`, strings.Repeat("[", 300), `{"tasks":{"b":{"inputs":["../../x","$TURBO_ROOT$/y"]}}}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, root bool) {
		file, err := parseTurbo("turbo.json", raw, root)
		wrong(t, err)
		if err != nil {
			return
		}
		p := &Project{Name: "a", Dir: "packages/a", Scripts: map[string]string{"build": "x"}}
		w := &Workspace{Projects: []*Project{p}}
		tasks := &turbo{w: w, files: map[id.Project]*turboFile{"//": file}, chains: map[id.Project][]*turboFile{}, merged: map[mergeKey]*turboTask{}}
		if !root {
			tasks.files = map[id.Project]*turboFile{"a": file, "//": {file: file.file, root: true, tasks: map[string]*turboTask{}}}
		}
		for name := range file.tasks {
			task, err := tasks.task(p, nameBehind(name))
			if err != nil {
				if c := errs.CodeOf(err); c != errs.InvalidArgument && c != errs.FailedPrecondition {
					t.Errorf("code %v: %v", c, err)
				}
				continue
			}
			if task == nil {
				continue
			}
			for _, g := range slices.Concat(task.Inputs, task.Outputs) {
				if g = strings.TrimPrefix(g, "!"); strings.HasPrefix(path.Clean(strings.TrimPrefix(g, "/")), "../") {
					t.Errorf("glob %q leads out", g)
				}
			}
		}
	})
}

func nameBehind(key string) string { return key[strings.IndexByte(key, '#')+1:] }

func FuzzBrood(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		files, err := filepath.Glob("testdata/brood/" + dir + "/*.yaml")
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	for _, s := range []string{"a: &a [*a]", "<<: {a: b}", "? a\n: b", "- - - -", "a: |\n  x", "!!str a: b", "a: .inf", "%YAML 1.2\n---\n", "\x00", "a: 'b", "tasks: {a: {timeout: 999999999h}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, root := range []bool{true, false} {
			_, err := parseBrood("brood.yaml", raw, root)
			wrong(t, err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{`{"name":"a","workspaces":["x"]}`, `{"workspaces":{"packages":["x"]}}`, `{"workspaces":null}`, `{"devEngines":{"packageManager":[{"name":"a"}]}}`, `{"scripts":{"a":null}}`, `[]`, ``, `{"name":1}`, `{"engines":{"node" : ">=20"}}`, `{"engines":["node"]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseManifest("package.json", raw)
		wrong(t, err)
		if (m == nil) == (err == nil) {
			t.Errorf("%v, %v", m, err)
		}
		if m != nil && len(m.Engines) > 0 && !json.Valid([]byte(m.engines())) {
			t.Errorf("engines %q of %q", m.engines(), m.Engines)
		}
	})
}

func FuzzPnpmWorkspace(f *testing.F) {
	for _, s := range []string{"packages:\n  - a/*\n  - '!b'\n", "linkWorkspacePackages: deep\n", "catalog: {a: ^1}\ncatalogs: {b: {c: 1}}\n", "packages: x", "catalogs: [a]", "catalog: 3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := parsePnpm(raw)
		wrong(t, err)
	})
}

// FuzzRange: a range never allows what one of its exact versions is not, and
// nothing panics.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"^1.2.3", "~1", ">=1 <2 || 3.x", "1 - 2", "*", "", "v1.2.3-beta.1", "<=1", ">1.2", "= 1.0.0", "x.1", "^0.0", "latest", "1.2.3.4", "999999999999999.0.0"} {
		f.Add(s, "1.2.3")
	}
	f.Fuzz(func(t *testing.T, want, have string) {
		v, ok := parseVersion(have)
		c, is := parseConstraint(want)
		if ok && is {
			c.allows(v)
		}
		if exact, is := parseVersion(have); is && exact.compare(v) != 0 {
			t.Errorf("%q differs from itself", have)
		}
	})
}

// FuzzMembers: whatever the globs, only folders below the root are found, and
// none in node_modules.
func FuzzMembers(f *testing.F) {
	root := f.TempDir()
	for _, dir := range []string{"packages/a", "packages/b/c", "packages/node_modules/x", "apps/x"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, manifestName), []byte("{}"), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range []string{"packages/*", "**", "{packages,apps}/*", "../*", "/etc", "!packages/a", "a{b,{c,d}}e", "[", "**/**/**", "packages/[ab]", "./apps/x/", "{,}{,}{,}", "\\*", "..{}/**", "a/{..,b}/{..}/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, glob string) {
		dirs, err := members(root, []string{glob, "!" + glob + "x"}, holding(manifestName))
		wrong(t, err)
		for _, dir := range dirs {
			if !filepath.IsLocal(dir) || strings.Contains(dir, "node_modules") {
				t.Errorf("%q finds %q", glob, dir)
			}
		}
	})
}
