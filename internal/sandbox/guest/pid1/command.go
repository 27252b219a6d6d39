//go:build linux

package pid1

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// Exit codes that a shell gives a command that it could not run; they travel
// in the error's facts under ExitKey.
const (
	notExecutable = "126"
	notFound      = "127"
	// ExitKey is the fact of a start's error that holds the exit code a
	// shell would give.
	ExitKey = "exit_code"
)

// ToolDir is where the guest's own program lies in every sandbox.
const ToolDir = "/.brood/bin"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// prepare looks up everything about a command that can be looked up, so that
// what fails has its reason.
func (s *Server) prepare(c proto.Command, tty bool) (program, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return program{}, errs.New(errs.InvalidArgument, "no command given")
	}
	for _, list := range [][]string{c.Argv, c.Env} {
		for _, v := range list {
			if strings.ContainsRune(v, 0) {
				return program{}, errs.New(errs.InvalidArgument, "arguments and environment must not contain a zero byte")
			}
		}
	}
	who, err := s.account(c.User)
	if err != nil {
		return program{}, err
	}
	p := program{argv: c.Argv, cwd: c.Cwd, cred: who.cred, env: s.environment(c.Env, who, tty)}
	if p.cwd == "" {
		p.cwd = "/"
	}
	if info, err := os.Stat(p.cwd); err != nil || !info.IsDir() {
		return program{}, errs.New(errs.InvalidArgument, "working directory %.200s is not a folder in the sandbox", p.cwd)
	}
	p.path, err = lookPath(c.Argv[0], p.env, p.cwd)
	return p, err
}

// environment fills in what every program is given unless it is set.
func (s *Server) environment(env []string, who account, tty bool) []string {
	env = append(slices.Clone(s.identityEnv()), env...)
	out := make([]string, 0, len(env)+5)
	at := map[string]int{}
	for _, kv := range env {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			continue
		}
		if i, again := at[key]; again {
			out[i] = kv // the later one wins
			continue
		}
		at[key] = len(out)
		out = append(out, kv)
	}
	fill := func(key, value string) {
		if _, set := at[key]; !set && value != "" {
			at[key] = len(out)
			out = append(out, key+"="+value)
		}
	}
	fill("PATH", defaultPath)
	fill("HOME", who.home)
	fill("USER", who.name)
	if tty {
		fill("TERM", "xterm-256color")
	}
	i := at["PATH"]
	if dirs := strings.TrimPrefix(out[i], "PATH="); !slices.Contains(filepath.SplitList(dirs), ToolDir) {
		out[i] = "PATH=" + strings.TrimPrefix(dirs+":"+ToolDir, ":")
	}
	return out
}

// lookPath finds a program as a shell in cwd would.
func lookPath(name string, env []string, cwd string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		return name, executable(name)
	}
	denied := error(nil)
	for _, dir := range filepath.SplitList(value(env, "PATH")) {
		if dir == "" {
			dir = "."
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		path := filepath.Join(dir, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errs.Is(err, errs.PermissionDenied) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", errs.With(errs.New(errs.NotFound, "%.200s: command not found in the sandbox", name), ExitKey, notFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return errs.With(errs.New(errs.NotFound, "%.200s: no such file in the sandbox", path), ExitKey, notFound)
	case err != nil:
		return errs.With(errs.New(errs.PermissionDenied, "%.200s: %w", path, errors.Unwrap(err)), ExitKey, notExecutable)
	case info.IsDir():
		return errs.With(errs.New(errs.PermissionDenied, "%.200s: is a folder, not a program", path), ExitKey, notExecutable)
	case info.Mode()&0o111 == 0:
		return errs.With(errs.New(errs.PermissionDenied, "%.200s: is not executable", path), ExitKey, notExecutable)
	}
	return nil
}

func value(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// startError gives a failed fork or exec its code.
func startError(p program, err error) error {
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.ENOENT),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ETXTBSY):
		// The file was there a moment ago; ENOENT is its interpreter.
		return errs.With(errs.New(errs.PermissionDenied, "%.200s: cannot be executed: %w", p.path, err), ExitKey, notExecutable)
	case errors.Is(err, syscall.E2BIG):
		return errs.With(errs.New(errs.InvalidArgument, "%.200s: arguments and environment are too long", p.path), ExitKey, notExecutable)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EINVAL):
		return errs.New(errs.PermissionDenied, "%.200s: cannot be started as this user: %w", p.path, err)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return errs.New(errs.ResourceExhausted, "%.200s: cannot be started: %w", p.path, err)
	}
	return errs.New(errs.Internal, "%.200s: cannot be started: %w", p.path, err)
}
