package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/sandbox"
)

// resolveHost returns this machine's root by allow-list. The skeleton is
// planned in memory each time, which tells its digest; it is written only
// when none with that digest is there.
func (s *Store) resolveHost(ctx context.Context, opts Options) (Image, error) {
	p, err := s.planHost(opts.Mounts)
	if err != nil {
		return Image{}, err
	}
	sum := p.digest()
	release, err := s.alone(ctx, hostPrefix+string(sum))
	if err != nil {
		return Image{}, err
	}
	defer release()
	let, err := s.keep(ctx, sum)
	if err != nil {
		return Image{}, err
	}
	defer let()
	if img, err := s.load(hostPrefix + string(sum)); err == nil && (s.isChecked(sum) || p.sameAs(img.Root.Host.Dir)) {
		s.setChecked(sum)
		return img, nil
	}
	img, err := s.buildHost(p, sum)
	if err == nil {
		s.setChecked(sum)
	}
	return img, home.DiskError(err, "image host")
}

// isChecked says whether this process has looked at a skeleton: nothing
// writes to one later.
func (s *Store) isChecked(d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checked[d]
}

func (s *Store) setChecked(d digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked[d] = true
}

// plan is a skeleton before it is written.
type plan struct {
	copies *copies
	nodes  map[string]*planned // by path relative to the root
	binds  []sandbox.Bind
	size   int64
	notes  notes
}

// planned is one entry of a skeleton.
type planned struct {
	mode    fs.FileMode   // type and permissions
	content []byte        // of a file
	sum     digest.Digest // of content, once it was asked for
	target  string        // of a symlink
}

// hash is asked by one goroutine at a time.
func (n *planned) hash() digest.Digest {
	if n.sum == "" {
		n.sum = digest.Of(n.content)
	}
	return n.sum
}

func (s *Store) planHost(mounts []sandbox.Bind) (*plan, error) {
	p := &plan{copies: &s.copies, nodes: map[string]*planned{}}
	for _, d := range bare {
		p.nodes[d.path] = &planned{mode: unixMode(d.mode) | fs.ModeDir}
	}
	for name, target := range links {
		p.nodes[name] = &planned{mode: fs.ModeSymlink | 0o777, target: target}
	}
	if err := p.addTops(s.mach.root); err != nil {
		return nil, err
	}
	if err := p.addEtc(filepath.Join(s.mach.root, "etc")); err != nil {
		return nil, err
	}
	for name, content := range fresh {
		p.nodes[name] = &planned{mode: 0o644, content: []byte(content)}
	}
	p.nodes[strings.TrimPrefix(GuestPath, "/")] = &planned{mode: 0o755, content: s.guest.Bytes, sum: s.guest.Digest}
	if err := p.addMounts(mounts); err != nil {
		return nil, err
	}
	for _, b := range p.binds {
		if err := s.keepsHomeOut(b.Source); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func unixMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	if m&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// addTops shows the folders with programs and libraries.
func (p *plan) addTops(root string) error {
	for _, name := range tops {
		from := filepath.Join(root, name)
		fi, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return errs.New(errs.FailedPrecondition, "image host: %w", err)
		}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err != nil {
				return errs.New(errs.FailedPrecondition, "image host: %w", err)
			}
			p.nodes[name] = &planned{mode: fs.ModeSymlink | 0o777, target: target}
		case fi.IsDir():
			p.nodes[name] = &planned{mode: fs.ModeDir | 0o755}
			p.binds = append(p.binds, sandbox.Bind{Source: from, Target: "/" + name, ReadOnly: true})
		}
	}
	return nil
}

// addEtc copies the listed part of /etc.
func (p *plan) addEtc(dir string) error {
	for _, pattern := range etc {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return errs.New(errs.Internal, "image host: pattern %s: %w", pattern, err)
		}
		for _, from := range found {
			if err := p.copyEtc(dir, from); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plan) copyEtc(etcDir, from string) error {
	return filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil // not for everybody, or just removed
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(etcDir, file)
		if err != nil {
			return err
		}
		if file != from && isNever(e.Name()) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		fi, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // just removed
		}
		return p.copyOne(file, path.Join("etc", filepath.ToSlash(rel)), fi)
	})
}

func isNever(name string) bool {
	return slices.ContainsFunc(never, func(pattern string) bool {
		ok, _ := path.Match(pattern, strings.ToLower(name))
		return ok
	})
}

func (p *plan) copyOne(file, name string, fi fs.FileInfo) error {
	isLink := fi.Mode()&fs.ModeSymlink != 0
	switch {
	case fi.IsDir():
		if fi.Mode().Perm()&0o005 != 0o005 {
			return fs.SkipDir
		}
		p.addDir(name)
		return nil
	case !isLink && (!fi.Mode().IsRegular() || fi.Mode().Perm()&0o004 == 0):
		return nil
	case fi.Size() > maxCopy:
		p.notes.add("/%s is larger than %d bytes and is left out", name, maxCopy)
		return nil
	}
	st := statOf(fi)
	now := copied{size: fi.Size(), mtime: fi.ModTime().UnixNano(), ctime: st.ctime.UnixNano(), id: st.id}
	n := p.copies.get(file, now)
	if n == nil {
		n = readCopy(file, fi)
		if n == nil {
			return nil
		}
		if time.Since(st.ctime) > settleTime { // else a change might not show
			p.copies.put(file, now, n)
		}
	}
	if p.size += int64(len(n.content)); p.size > maxTotal {
		return errs.New(errs.ResourceExhausted, "image host: the listed part of /etc is larger than %d bytes", maxTotal)
	}
	p.addDir(path.Dir(name))
	p.nodes[name] = n
	return nil
}

// readCopy reads a file or symlink; nil when it was just removed.
func readCopy(file string, fi fs.FileInfo) *planned {
	if fi.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(file)
		if err != nil {
			return nil
		}
		return &planned{mode: fs.ModeSymlink | 0o777, target: target}
	}
	b, err := os.ReadFile(file)
	if err != nil || len(b) > maxCopy {
		return nil
	}
	return &planned{mode: 0o644 | fi.Mode().Perm()&0o111, content: b}
}

// addDir plans a folder and those above it.
func (p *plan) addDir(name string) {
	for ; name != "."; name = path.Dir(name) {
		if p.nodes[name] == nil {
			p.nodes[name] = &planned{mode: fs.ModeDir | 0o755}
		}
	}
}

// digest is over all that a sandbox would see or be given: the entries, the
// contents, and what is mounted.
func (p *plan) digest() digest.Digest {
	sum := digest.NewWriter()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(sum, format+"\n", args...) } // never fails
	say("brood host 1")
	for _, name := range p.names() {
		n := p.nodes[name]
		say("%q %o %q %s", name, n.mode, n.target, n.hash())
	}
	for _, b := range p.binds {
		say("bind %q %q %t", b.Source, b.Target, b.ReadOnly)
	}
	return sum.Digest()
}

// names are the planned paths, folders before what is in them.
func (p *plan) names() []string {
	names := make([]string, 0, len(p.nodes))
	for name := range p.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sameAs says whether the skeleton in dir is still what was planned, by names
// and sizes: a power loss may have cut files that were written long before.
func (p *plan) sameAs(dir string) bool {
	for name, n := range p.nodes {
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || fi.Mode().Type() != n.mode.Type() || n.mode.IsRegular() && fi.Size() != int64(len(n.content)) {
			return false
		}
	}
	return true
}

// buildHost writes a skeleton beside and publishes it.
func (s *Store) buildHost(p *plan, sum digest.Digest) (img Image, err error) {
	tmp := s.hidden("new")
	root := filepath.Join(tmp, skeletonName)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return Image{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(tmp))
		}
	}()
	if err := os.Chmod(root, 0o755); err != nil { // whatever the umask is
		return Image{}, err
	}
	for _, name := range p.names() {
		if err := writePlanned(filepath.Join(root, name), p.nodes[name]); err != nil {
			return Image{}, err
		}
	}
	at("host:written")
	r := record{
		Ref: "host", Kind: Host, Digest: sum, Created: time.Now().UTC(), Binds: p.binds,
		Size: p.size + int64(len(s.guest.Bytes)), Notes: p.notes.list(),
	}
	if err := recordSchema.Write(filepath.Join(tmp, recordName), r, home.Volatile); err != nil {
		return Image{}, err
	}
	at("host:recorded")
	if err := s.publishHost(tmp, hostPrefix+string(sum)); err != nil {
		return Image{}, err
	}
	return s.load(hostPrefix + string(sum))
}

// publishHost is publish; a damaged skeleton of the same digest goes first.
func (s *Store) publishHost(tmp, folder string) error {
	final := filepath.Join(s.dir, folder)
	if _, err := os.Lstat(final); err == nil {
		if mounts, err := mountsBelow(final); err != nil || len(mounts) > 0 {
			return errors.Join(err, errs.New(errs.FailedPrecondition, "the skeleton %s is damaged and in use: stop the sandboxes of the image host", final))
		}
		aside := s.hidden("gone")
		if err := os.Rename(final, aside); err != nil {
			return err
		}
		if err := removeTree(aside); err != nil {
			return err
		}
	}
	return s.publish(tmp, folder)
}

func writePlanned(file string, n *planned) error {
	switch {
	case n.mode.IsDir():
		if err := os.MkdirAll(file, 0o755); err != nil {
			return err
		}
		return os.Chmod(file, n.mode)
	case n.mode&fs.ModeSymlink != 0:
		return os.Symlink(n.target, file)
	}
	if err := os.WriteFile(file, n.content, n.mode.Perm()); err != nil {
		return err
	}
	return os.Chmod(file, n.mode.Perm())
}

// Stat returns size and modification time of a file of a host image as it is
// now, by its path in the sandbox without symlinks: whether what a restored
// process maps is still what it was.
func (s *Store) Stat(d digest.Digest, inside string) (size, mtimeNs int64, err error) {
	img, err := s.Get(d)
	if err != nil {
		return 0, 0, err
	}
	if img.Root.Host == nil {
		return 0, 0, errs.New(errs.InvalidArgument, "image %s is not made of this machine's root", d.Short())
	}
	fi, err := os.Lstat(HostPath(img.Root.Host, inside))
	if err != nil {
		return 0, 0, err
	}
	return fi.Size(), fi.ModTime().UnixNano(), nil
}

// HostPath returns where on this machine a file of a host image lies, by its
// path in the sandbox without symlinks.
func HostPath(root *sandbox.HostRoot, inside string) string {
	inside = path.Clean("/" + inside)
	best := sandbox.Bind{Source: root.Dir, Target: "/"}
	for _, b := range root.Binds {
		if (inside == b.Target || strings.HasPrefix(inside, b.Target+"/")) && len(b.Target) > len(best.Target) {
			best = b
		}
	}
	return filepath.Join(best.Source, strings.TrimPrefix(inside, best.Target))
}

// keepsHomeOut refuses to show brood's own folder to a sandbox: whoever reads
// it owns all sandboxes.
func (s *Store) keepsHomeOut(source string) error {
	own, err := filepath.EvalSymlinks(s.home.Dir())
	if err != nil {
		own = s.home.Dir()
	}
	shown, err := filepath.EvalSymlinks(source)
	if err != nil {
		return errs.New(errs.InvalidArgument, "mount of %s: %w", source, err)
	}
	if within(own, shown) || within(shown, own) {
		return errs.New(errs.PermissionDenied,
			"showing %s to a sandbox would show it %s, which holds the keys of all sandboxes: mount a folder without it, or set BROOD_HOME elsewhere", source, own)
	}
	return nil
}

// within says whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// addMounts checks what the user wants shown and plans where it goes.
func (p *plan) addMounts(mounts []sandbox.Bind) error {
	mounts = slices.Clone(mounts)
	// A folder before what is mounted below it.
	slices.SortFunc(mounts, func(a, b sandbox.Bind) int { return strings.Compare(a.Target, b.Target) })
	for i, m := range mounts {
		if i > 0 && mounts[i-1].Target == m.Target {
			return errs.New(errs.InvalidArgument, "two mounts go to %s", m.Target)
		}
		if err := p.addMount(m); err != nil {
			return errs.New(errs.CodeOf(err), "mount %s:%s: %w", m.Source, m.Target, err)
		}
		p.binds = append(p.binds, m)
	}
	return nil
}

// closed are the folders of a sandbox that nothing is mounted into: they are
// its kernel's, or our own.
var closed = []string{"/proc", "/sys", "/dev", "/.brood"}

func (p *plan) addMount(m sandbox.Bind) error {
	if !filepath.IsAbs(m.Source) || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" {
		return invalid("both must be absolute, and the target not the root")
	}
	if slices.ContainsFunc(closed, func(d string) bool { return within(m.Target, d) }) {
		return invalid("nothing can be mounted there")
	}
	fi, err := os.Stat(m.Source)
	if err != nil {
		return errs.New(errs.NotFound, "%w", err)
	}
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return invalid("only folders and files can be mounted")
	}
	// Below something that is mounted the place must be there already.
	for i := len(p.binds) - 1; i >= 0; i-- {
		if b := p.binds[i]; within(m.Target, b.Target) {
			there := filepath.Join(b.Source, strings.TrimPrefix(m.Target, b.Target))
			at, err := os.Lstat(there)
			if err != nil || at.IsDir() != fi.IsDir() || at.Mode()&fs.ModeSymlink != 0 {
				return invalid("%s is not there to mount on: mount elsewhere, such as below /mnt", there)
			}
			return nil
		}
	}
	return p.mountPoint(strings.TrimPrefix(m.Target, "/"), fi.IsDir())
}

// mountPoint plans the folder or empty file that something is mounted on.
func (p *plan) mountPoint(name string, isDir bool) error {
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if n := p.nodes[up]; n != nil && !n.mode.IsDir() {
			return invalid("/%s is no folder in a sandbox: mount elsewhere, such as below /mnt", up)
		}
	}
	p.addDir(path.Dir(name))
	old := p.nodes[name]
	switch {
	case old == nil && isDir:
		p.nodes[name] = &planned{mode: fs.ModeDir | 0o755}
	case old == nil:
		p.nodes[name] = &planned{mode: 0o644}
	case old.mode.IsDir() != isDir || old.mode&fs.ModeSymlink != 0:
		return invalid("a sandbox has something else there: mount elsewhere, such as below /mnt")
	}
	return nil
}
