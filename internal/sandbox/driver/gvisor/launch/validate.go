//go:build linux

package launch

import (
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
)

// Bounds of what a Create may hold, far above what a sandbox needs and far
// below what a frame may carry.
const (
	maxID      = 64
	maxStrings = 4096
	maxText    = 1 << 20
	maxBinds   = 256
	maxHost    = 64
)

// ValidateID reports whether id can name a container: lower-case letters,
// digits and dashes, 1 to 64 of them.
func ValidateID(id string) error {
	if id == "" || len(id) > maxID {
		return errs.New(errs.InvalidArgument, "container id %.80q: want 1 to %d characters", id, maxID)
	}
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return errs.New(errs.InvalidArgument, "container id %q: only a-z, 0-9 and - are allowed", id)
		}
	}
	return nil
}

// Validate checks a request with files descriptors attached to it. Both sides
// call it: the client to fail early, the launcher because it must.
func (r *Request) Validate(files int) error {
	if r.Op != OpCreate && r.Create != nil {
		return errs.New(errs.InvalidArgument, "request %q takes no container", r.Op)
	}
	if want := r.ownFiles(); files < want || (files > want && r.Op != OpCreate) {
		return errs.New(errs.InvalidArgument, "request %q comes with %d files, want %d", r.Op, files, want)
	}
	switch r.Op {
	case OpInfo, OpList, OpStop:
		return nil
	case OpStart, OpDestroy, OpChannel, OpWait:
		return ValidateID(r.ID)
	case OpRestore, OpCheckpoint:
		if err := ValidateID(r.ID); err != nil {
			return err
		}
		return validatePath("directory", r.Dir)
	case OpCreate:
		if r.Create == nil {
			return errs.New(errs.InvalidArgument, "create: no container given")
		}
		return r.Create.validate(files - r.ownFiles())
	default:
		return errs.New(errs.Unsupported, "request %.40q is not known to protocol %d", string(r.Op), Protocol)
	}
}

// ownFiles is how many descriptors come first, before those for the guest: the
// directory of an image, or the EROFS file. They are passed open because the
// launcher's view of the machine's mounts may be older than the caller's.
func (r *Request) ownFiles() int {
	switch {
	case r.Op == OpCheckpoint || r.Op == OpRestore:
		return 1
	case r.Op == OpCreate && r.Create != nil && r.Create.Root.EROFS != "":
		return 1
	}
	return 0
}

func (c *Create) validate(files int) error {
	if err := ValidateID(c.ID); err != nil {
		return err
	}
	if err := c.Root.validate(); err != nil {
		return err
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errs.New(errs.InvalidArgument, "container %s: argv is empty", c.ID)
	}
	if err := validateStrings("argv", c.Argv); err != nil {
		return err
	}
	if err := validateStrings("env", c.Env); err != nil {
		return err
	}
	for _, kv := range c.Env {
		if i := strings.IndexByte(kv, '='); i <= 0 {
			return errs.New(errs.InvalidArgument, "environment entry %.80q: want NAME=value", kv)
		}
	}
	if c.Cwd != "" {
		if err := validatePath("working directory", c.Cwd); err != nil {
			return err
		}
	}
	if c.DebugDir != "" {
		if err := validatePath("debug directory", c.DebugDir); err != nil {
			return err
		}
	}
	if len(c.Hostname) > maxHost || strings.ContainsRune(c.Hostname, 0) {
		return errs.New(errs.InvalidArgument, "hostname %.80q: want at most %d characters", c.Hostname, maxHost)
	}
	if files != 0 && files < 3 {
		return errs.New(errs.InvalidArgument, "container %s: %d files: give none, or standard input, output and error first", c.ID, files)
	}
	return nil
}

func (r *Root) validate() error {
	switch {
	case (r.EROFS == "") == (r.Host == nil):
		return errs.New(errs.InvalidArgument, "root: want exactly one of an EROFS image and a host folder")
	case r.EROFS != "":
		return validatePath("EROFS image", r.EROFS)
	}
	if err := validatePath("root folder", r.Host.Dir); err != nil {
		return err
	}
	if r.Host.Dir == "/" {
		return errs.New(errs.InvalidArgument, "root folder: / cannot be a skeleton; bind its parts into an empty folder")
	}
	if len(r.Host.Binds) > maxBinds {
		return errs.New(errs.InvalidArgument, "root: %d binds, at most %d are allowed", len(r.Host.Binds), maxBinds)
	}
	for _, b := range r.Host.Binds {
		if err := validatePath("bind source", b.Source); err != nil {
			return err
		}
		if err := validatePath("bind target", b.Target); err != nil {
			return err
		}
		if b.Target == "/" {
			return errs.New(errs.InvalidArgument, "bind target: / is the root folder itself")
		}
	}
	return nil
}

func validatePath(what, path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > 4095 || strings.ContainsRune(path, 0) {
		return errs.New(errs.InvalidArgument, "%s %.200q: want an absolute path without . or .. or doubled slashes", what, path)
	}
	return nil
}

func validateStrings(what string, list []string) error {
	if len(list) > maxStrings {
		return errs.New(errs.InvalidArgument, "%s: %d entries, at most %d are allowed", what, len(list), maxStrings)
	}
	total := 0
	for _, s := range list {
		total += len(s)
		if strings.ContainsRune(s, 0) {
			return errs.New(errs.InvalidArgument, "%s: an entry holds a zero byte", what)
		}
	}
	if total > maxText {
		return errs.New(errs.InvalidArgument, "%s: %d bytes, at most %d are allowed", what, total, maxText)
	}
	return nil
}
