package lockfile_test

import (
	"strings"
	"testing"

	"brood/internal/run/cache/lockfile"
)

const pnpm9 = `lockfileVersion: '9.0'

settings:
  autoInstallPeers: true

overrides:
  x: 1

importers:

  .:
    devDependencies:
      typescript:
        specifier: ^5.0.0
        version: 5.4.5

  packages/a:
    dependencies:
      '@scope/b':
        specifier: workspace:*
        version: link:../b
      react-dom:
        specifier: ^18
        version: 18.2.0(react@18.2.0)
      lo:
        specifier: npm:lodash@4
        version: lodash@4.17.21

  packages/b:
    dependencies:
      loop-a:
        specifier: '1'
        version: 1.0.0

  packages/empty: {}

packages:

  lodash@4.17.21:
    resolution: {integrity: sha512-lodash==}
    deprecated: |-
      a long text: with a colon

      and more

  loop-a@1.0.0:
    resolution: {integrity: sha512-a==}

  loop-b@1.0.0:
    resolution: {integrity: sha512-b==}

  react-dom@18.2.0:
    resolution: {integrity: sha512-dom==}
    peerDependencies:
      react: ^18.2.0

  react@18.2.0:
    resolution: {integrity: sha512-react==}
    engines: {node: '>=0.10.0'}

  typescript@5.4.5:
    resolution: {integrity: sha512-ts==}
    hasBin: true

snapshots:

  lodash@4.17.21: {}

  loop-a@1.0.0:
    dependencies:
      loop-b: 1.0.0

  loop-b@1.0.0:
    dependencies:
      loop-a: 1.0.0

  react-dom@18.2.0(react@18.2.0):
    dependencies:
      react: 18.2.0

  react@18.2.0: {}

  typescript@5.4.5: {}
`

const pnpm6 = `lockfileVersion: '6.0'

settings:
  autoInstallPeers: true

importers:

  packages/a:
    dependencies:
      lodash:
        specifier: ^4
        version: 4.17.21
      other:
        specifier: github:x/y
        version: github.com/x/y/abc

  packages/b: {}

packages:

  /lodash@4.17.21:
    resolution: {integrity: sha512-lodash==}
    dev: false

  github.com/x/y/abc:
    resolution: {tarball: https://codeload}
    name: other
    dependencies:
      lodash: 4.17.21
`

const npm3 = `{
  "name": "w", "lockfileVersion": 3, "requires": true,
  "packages": {
    "": {"name": "w", "workspaces": ["packages/*"], "devDependencies": {"typescript": "^5"}},
    "packages/a": {"version": "1.0.0", "dependencies": {"b": "*", "lodash": "^3", "@s/x": "1"}},
    "packages/b": {"version": "1.0.0", "dependencies": {"lodash": "^4"}, "optionalDependencies": {"gone": "1"}},
    "node_modules/a": {"resolved": "packages/a", "link": true},
    "node_modules/b": {"resolved": "packages/b", "link": true},
    "node_modules/lodash": {"version": "4.17.21", "integrity": "sha512-4"},
    "packages/a/node_modules/lodash": {"version": "3.0.0", "integrity": "sha512-3"},
    "node_modules/@s/x": {"version": "1.0.0", "dependencies": {"deep": "1"}, "peerDependencies": {"lodash": "*"}},
    "node_modules/@s/x/node_modules/deep": {"version": "1.2.0"},
    "node_modules/deep": {"version": "2.0.0"},
    "node_modules/typescript": {"version": "5.4.5"}
  }
}`

func see(t *testing.T, l *lockfile.Lock, dir string) string {
	t.Helper()
	if l == nil {
		t.Fatal("not understood")
	}
	all, ok := l.Project(dir)
	if !ok {
		return "unknown"
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func TestWhatAProjectSees(t *testing.T) {
	for _, tc := range []struct{ file, text, dir, want string }{
		{"pnpm-lock.yaml", pnpm9, ".", "typescript@5.4.5"},
		{"pnpm-lock.yaml", pnpm9, "packages/a", "lodash@4.17.21 react-dom@18.2.0(react@18.2.0) react@18.2.0"},
		{"pnpm-lock.yaml", pnpm9, "packages/b", "loop-a@1.0.0 loop-b@1.0.0"},
		{"pnpm-lock.yaml", pnpm9, "packages/empty", ""},
		{"pnpm-lock.yaml", pnpm9, "packages/none", "unknown"},
		{"pnpm-lock.yaml", pnpm6, "packages/a", "/lodash@4.17.21 github.com/x/y/abc"},
		{"pnpm-lock.yaml", strings.ReplaceAll(pnpm6, "\n", "\r\n"), "packages/b", ""},
		{"package-lock.json", npm3, ".", "node_modules/typescript"},
		{"package-lock.json", npm3, "packages/a", "node_modules/@s/x node_modules/@s/x/node_modules/deep node_modules/lodash packages/a/node_modules/lodash"},
		{"package-lock.json", npm3, "packages/b", "node_modules/lodash"},
	} {
		if got := see(t, lockfile.Parse(tc.file, []byte(tc.text)), tc.dir); got != tc.want {
			t.Errorf("%s %s sees %q, want %q", tc.file, tc.dir, got, tc.want)
		}
	}
}

func TestAChangeShowsWhereItIsSeen(t *testing.T) {
	for _, tc := range []struct{ file, text, old, new, seenBy string }{
		{"pnpm-lock.yaml", pnpm9, "sha512-react==", "sha512-other==", "packages/a"},
		{"pnpm-lock.yaml", pnpm9, "sha512-b==", "sha512-other==", "packages/b"},
		{"pnpm-lock.yaml", pnpm9, "and more", "and less", "packages/a"},
		{"pnpm-lock.yaml", pnpm9, "hasBin: true", "hasBin: false", "."},
		{"pnpm-lock.yaml", pnpm9, "specifier: ^18", "specifier: ^18.1", ""},
		{"pnpm-lock.yaml", pnpm6, "dev: false", "dev: true", "packages/a"},
		{"package-lock.json", npm3, `"version": "1.2.0"`, `"version": "1.2.1"`, "packages/a"},
		{"package-lock.json", npm3, `"version": "2.0.0"`, `"version": "2.0.1"`, ""},
		{"package-lock.json", npm3, `sha512-4`, `sha512-5`, "packages/a packages/b"},
	} {
		before, after := lockfile.Parse(tc.file, []byte(tc.text)), lockfile.Parse(tc.file, []byte(strings.Replace(tc.text, tc.old, tc.new, 1)))
		var seen []string
		for _, dir := range []string{".", "packages/a", "packages/b", "packages/empty"} {
			a, _ := before.Project(dir)
			b, _ := after.Project(dir)
			var x, y strings.Builder
			for _, p := range a {
				x.WriteString(p.Name + p.Value + "\n")
			}
			for _, p := range b {
				y.WriteString(p.Name + p.Value + "\n")
			}
			if x.String() != y.String() {
				seen = append(seen, dir)
			}
		}
		if got := strings.Join(seen, " "); got != tc.seenBy {
			t.Errorf("%s: %q for %q is seen by %q, want %q", tc.file, tc.new, tc.old, got, tc.seenBy)
		}
	}
}

func TestTheUnknownIsWhole(t *testing.T) {
	for name, text := range map[string]string{
		"yarn.lock":           "# yarn lockfile v1\n",
		"bun.lock":            "{}",
		"a/pnpm-lock.yaml":    "lockfileVersion: 5.4\n",
		"b/pnpm-lock.yaml":    "",
		"c/pnpm-lock.yaml":    "lockfileVersion: '9.0'\nimporters:\n  ? very long\n  : x\n",
		"d/pnpm-lock.yaml":    "lockfileVersion: '9.0'\nimporters: {a: b}\nx:\n  &anchor y: z\n",
		"e/pnpm-lock.yaml":    "lockfileVersion: '9.0'\nimporters:\n  a: {dependencies: {x: 1}}\n",
		"package-lock.json":   `{"lockfileVersion": 1, "dependencies": {}}`,
		"x/package-lock.json": `{"lockfileVersion": 9, "packages": {}}`,
		"y/package-lock.json": `{"lockfileVersion": 3, "packages": {"": 7}}`,
		"z/package-lock.json": `rubbish`,
		"npm-shrinkwrap.json": `[]`,
	} {
		if lockfile.Parse(name, []byte(text)) != nil {
			t.Errorf("%s: %q is understood", name, text)
		}
	}
}

func fuzz(f *testing.F, name string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := lockfile.Parse(name, []byte(text))
		if l == nil {
			return
		}
		for _, dir := range []string{".", "packages/a", "packages/b", ""} {
			all, _ := l.Project(dir)
			for i := 1; i < len(all); i++ {
				if all[i-1].Name > all[i].Name {
					t.Errorf("%q before %q", all[i-1].Name, all[i].Name)
				}
			}
		}
	})
}

func FuzzPnpm(f *testing.F) {
	fuzz(f, "pnpm-lock.yaml", pnpm9, pnpm6, "lockfileVersion: '9.0'\n'a''b': \"x\\n\"\n")
}

func FuzzNpm(f *testing.F) {
	fuzz(f, "package-lock.json", npm3, `{"lockfileVersion":2,"packages":{"../x":{"dependencies":{"../y":""}}}}`)
}
