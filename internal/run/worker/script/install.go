package script

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"brood/internal/base/errs"
)

// install is a package manager as PATH has it.
type install struct {
	name, version string
	// path is what PATH names, exec the file behind it (npm_execpath), lib the
	// folder of its package.
	path, exec, lib string
	node            node
	nodeAPI         string // the version of node that bun stands for, v24.1.0
}

// node is the Node.js of PATH.
type node struct {
	path     string // as PATH names it
	exec     string // what it calls itself, process.execPath
	version  string // v24.1.0
	platform string
	arch     string
}

// installs remembers what was found, by everything that it depends on.
type installs struct {
	mu    sync.Mutex // guards the maps; never held while a program runs
	nodes map[string]*once[node]
	byKey map[string]*once[*install]
}

// once is a value that one caller makes and the others wait for.
type once[T any] struct {
	do    sync.Once
	value T
	err   error
}

func (o *once[T]) get(f func() (T, error)) (T, error) {
	o.do.Do(func() { o.value, o.err = f() })
	return o.value, o.err
}

func entry[T any](mu *sync.Mutex, m *map[string]*once[T], key string) *once[T] {
	mu.Lock()
	defer mu.Unlock()
	if *m == nil {
		*m = map[string]*once[T]{}
	}
	e := (*m)[key]
	if e == nil {
		e = &once[T]{}
		(*m)[key] = e
	}
	return e
}

// look finds the manager of a request. The error says why it cannot be known
// which program it is; then it can only be started.
func (s *installs) look(ctx context.Context, r Request) (*install, error) {
	key := strings.Join([]string{r.Manager.Name, r.Manager.Version, r.Vars["PATH"], r.Vars["COREPACK_HOME"], r.Vars["HOME"], r.Root}, "\x00")
	return entry(&s.mu, &s.byKey, key).get(func() (*install, error) {
		in, err := s.identify(ctx, r)
		if err != nil {
			return nil, err
		}
		in.node, err = s.lookNode(ctx, r.Vars)
		return in, err
	})
}

// identify finds out which program a manager is.
func (s *installs) identify(ctx context.Context, r Request) (*install, error) {
	if r.Manager.Name == "yarn" {
		if in, err := pinnedYarn(r.Root); in != nil || err != nil {
			return in, err
		}
	}
	if r.Manager.Name == "bun" {
		return askBun(ctx, r.Vars)
	}
	return identify(r)
}

// askBun: bun is one file, which alone knows its version.
func askBun(ctx context.Context, vars map[string]string) (*install, error) {
	path := which("bun", vars["PATH"])
	if path == "" {
		return nil, errs.New(errs.NotFound, "PATH has no bun")
	}
	f, err := ask(ctx, path, vars, "JSON.stringify([process.execPath,process.versions.bun,process.version])")
	if err != nil || len(f) != 3 {
		return nil, errs.New(errs.FailedPrecondition, "%s does not say its version: %w", path, err)
	}
	return &install{name: "bun", version: f[1], path: path, exec: f[0], nodeAPI: f[2]}, nil
}

// identify reads which program PATH has for a manager.
func identify(r Request) (*install, error) {
	path := which(r.Manager.Name, r.Vars["PATH"])
	if path == "" {
		return nil, errs.New(errs.NotFound, "PATH has no %s", r.Manager.Name)
	}
	exec, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, errs.New(errs.NotFound, "%s: %w", path, err)
	}
	if filepath.Base(exec) == r.Manager.Name+".js" && filepath.Base(filepath.Dir(filepath.Dir(exec))) == "corepack" {
		exec = corepackExec(r)
	}
	lib, name, version := packageOf(exec)
	want := map[string][]string{"npm": {"npm"}, "pnpm": {"pnpm"}, "yarn": {"yarn", "@yarnpkg/cli-dist"}}[r.Manager.Name]
	for _, n := range want {
		if name == n {
			return &install{name: r.Manager.Name, version: version, path: path, exec: exec, lib: lib}, nil
		}
	}
	return nil, errs.New(errs.Unsupported, "%s is not the program itself", path)
}

// corepackExec is where corepack keeps the version that a workspace pins.
func corepackExec(r Request) string {
	home := r.Vars["COREPACK_HOME"]
	if home == "" {
		home = filepath.Join(r.Vars["HOME"], ".cache", "node", "corepack")
	}
	version, _, _ := strings.Cut(r.Manager.Version, "+")
	dir := filepath.Join(home, "v1", r.Manager.Name, version)
	var file struct {
		Bin map[string]string `json:"bin"`
	}
	b, err := os.ReadFile(filepath.Join(dir, ".corepack"))
	if err != nil || json.Unmarshal(b, &file) != nil {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(file.Bin[r.Manager.Name]))
}

// packageOf finds the package that a file belongs to.
func packageOf(file string) (dir, name, version string) {
	for dir = filepath.Dir(file); ; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err == nil {
			var m struct{ Name, Version string }
			if json.Unmarshal(b, &m) == nil && m.Name != "" {
				return dir, m.Name, m.Version
			}
		}
		if dir == filepath.Dir(dir) {
			return "", "", ""
		}
	}
}

// askLimit bounds how long a program may take to say its version.
const askLimit = 20 * time.Second

func (s *installs) lookNode(ctx context.Context, vars map[string]string) (node, error) {
	path := which("node", vars["PATH"])
	if path == "" {
		return node{}, nil // bun and a native pnpm need none
	}
	return entry(&s.mu, &s.nodes, path).get(func() (node, error) { return askNode(ctx, path, vars) })
}

func askNode(ctx context.Context, path string, vars map[string]string) (node, error) {
	f, err := ask(ctx, path, vars, "JSON.stringify([process.execPath,process.version,process.platform,process.arch])")
	if err != nil || len(f) != 4 {
		return node{}, errs.New(errs.FailedPrecondition, "%s does not say its version: %w", path, err)
	}
	return node{path: path, exec: f[0], version: f[1], platform: f[2], arch: f[3]}, nil
}

// ask has a JavaScript program evaluate an expression that gives a list.
func ask(ctx context.Context, path string, vars map[string]string, expression string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-p", expression)
	clean := clone(vars)
	delete(clean, "NODE_OPTIONS") // it may print, or start a debugger
	cmd.Env = environ(clean)
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var list []string
	return list, json.Unmarshal(out, &list)
}

// which finds a program in a PATH.
func which(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		return false
	}
	return x > major || x == major && y >= minor
}
