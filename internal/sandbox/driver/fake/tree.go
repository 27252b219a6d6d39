package fake

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"brood/internal/base/content"
	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// node is a file, folder or link.
type node struct {
	Mode     fs.FileMode
	Data     []byte
	Link     string
	Time     time.Time
	UID, GID int
}

// tree is a filesystem by absolute clean path.
type tree map[string]*node

// newTree has the folders that programs expect.
func newTree(hostname string) tree {
	t := tree{}
	for _, dir := range []string{"/", "/bin", "/etc", "/root", "/run", "/usr", "/usr/bin", "/var", "/.brood", "/.brood/bin"} {
		t[dir] = &node{Mode: fs.ModeDir | 0o755, Time: time.Now()}
	}
	t["/tmp"] = &node{Mode: fs.ModeDir | fs.ModeSticky | 0o777, Time: time.Now()}
	t["/etc/hostname"] = &node{Mode: 0o644, Data: []byte(hostname + "\n"), Time: time.Now()}
	t["/etc/hosts"] = &node{Mode: 0o644, Data: []byte("127.0.0.1\tlocalhost\n"), Time: time.Now()}
	return t
}

// follow returns where links lead.
func (t tree) follow(name string) string {
	for range 40 {
		n := t[name]
		if n == nil || n.Mode&fs.ModeSymlink == 0 {
			break
		}
		if path.IsAbs(n.Link) {
			name = path.Clean(n.Link)
		} else {
			name = path.Join(path.Dir(name), n.Link)
		}
	}
	return name
}

func (t tree) read(name string) ([]byte, error) {
	n := t[t.follow(name)]
	switch {
	case n == nil:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case n.Mode.IsDir():
		return nil, fmt.Errorf("%s: is a folder", name)
	}
	return slices.Clone(n.Data), nil
}

// write replaces a file with a fresh one: a reader of the old one keeps it.
func (t tree) write(name string, data []byte, mode fs.FileMode) error {
	name = t.follow(name)
	if n := t[name]; n != nil && n.Mode.IsDir() {
		return fmt.Errorf("%s: is a folder", name)
	}
	if dir := t[t.follow(path.Dir(name))]; dir == nil || !dir.Mode.IsDir() {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	t[name] = &node{Mode: mode, Data: slices.Clone(data), Time: time.Now()}
	return nil
}

func (t tree) append(name string, data []byte) error {
	old, err := t.read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.write(name, append(old, data...), 0o644)
}

func (t tree) mkdirAll(name string) {
	for ; t[name] == nil; name = path.Dir(name) {
		t[name] = &node{Mode: fs.ModeDir | 0o755, Time: time.Now()}
	}
}

func (t tree) stat(a proto.StatArgs) proto.StatResult {
	name := path.Clean(a.Path)
	if !a.NoFollow {
		name = t.follow(name)
	}
	n := t[name]
	if n == nil {
		return proto.StatResult{}
	}
	return proto.StatResult{
		Exists: true, Mode: uint32(n.Mode), Size: int64(len(n.Data)), ModTime: n.Time.UnixNano(),
		Link: n.Link, UID: n.UID, GID: n.GID,
	}
}

// size is what the files take.
func (t tree) size() (bytes uint64) {
	for _, n := range t {
		bytes += uint64(len(n.Data))
	}
	return bytes
}

// entry is a node on its way in or out.
type entry struct {
	name string
	*node
}

// unpack reads a tar stream. Nothing is changed yet.
func unpack(r io.Reader) ([]entry, error) {
	var all []entry
	for tr := content.NewTar(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // the stream's end says that it is whole
			return all, err
		}
		if err != nil {
			return nil, err
		}
		n := &node{Mode: h.FileInfo().Mode(), Link: h.Linkname, Time: h.ModTime, UID: h.Uid, GID: h.Gid}
		if n.Data, err = io.ReadAll(tr); err != nil {
			return nil, err
		}
		all = append(all, entry{path.Clean("/" + h.Name), n})
	}
}

// put places unpacked entries below dir.
func (t tree) put(a proto.PutArgs, all []entry) (proto.CopyResult, error) {
	dir := path.Clean(a.Dir)
	if a.MakeDir {
		t.mkdirAll(dir)
	}
	dir = t.follow(dir)
	if n := t[dir]; n == nil || !n.Mode.IsDir() {
		return proto.CopyResult{}, errs.New(errs.FailedPrecondition, "target folder: %s does not exist", dir)
	}
	var r proto.CopyResult
	for _, e := range all {
		name := path.Join(dir, e.name)
		old := t[name]
		if !a.KeepOwner {
			e.UID, e.GID = 0, 0
		}
		t.mkdirAll(path.Dir(name))
		switch {
		case e.Mode.IsDir() && old != nil && old.Mode.IsDir():
		case old != nil && old.Mode.IsDir():
			return r, errs.New(errs.FailedPrecondition, "%s is a folder", name)
		default:
			t[name] = e.node
		}
		r.Entries++
		r.Bytes += int64(len(e.Data))
	}
	return r, nil
}

// get returns a path and what is below it, as entries named from name on.
func (t tree) get(a proto.GetArgs) ([]entry, error) {
	top := path.Clean(a.Path)
	if !a.NoFollow {
		top = t.follow(top)
	}
	if t[top] == nil {
		return nil, errs.New(errs.NotFound, "%s in the sandbox: %w", a.Path, fs.ErrNotExist)
	}
	var all []entry
	for _, name := range slices.Sorted(maps.Keys(t)) {
		rest, below := strings.CutPrefix(name, strings.TrimSuffix(top, "/")+"/")
		switch {
		case name == top:
			all = append(all, entry{a.Name, t[name]})
		case below && rest != "":
			all = append(all, entry{path.Join(a.Name, rest), t[name]})
		}
	}
	// A folder comes before what is in it.
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// pack writes entries as a tar stream.
func pack(w io.Writer, all []entry) (proto.CopyResult, error) {
	var r proto.CopyResult
	tw := tar.NewWriter(w)
	for _, e := range all {
		h := &tar.Header{
			Name: e.name, Mode: int64(e.Mode.Perm()), Uid: e.UID, Gid: e.GID, ModTime: e.Time,
			Typeflag: tar.TypeReg, Size: int64(len(e.Data)), Linkname: e.Link,
		}
		switch {
		case e.Mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		case e.Mode&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
		}
		if err := tw.WriteHeader(h); err != nil {
			return r, err
		}
		if _, err := tw.Write(e.Data); err != nil {
			return r, err
		}
		r.Entries++
		r.Bytes += int64(len(e.Data))
	}
	return r, tw.Close()
}

// cutFile takes the path out of an output that goes to a file.
func cutFile(out string) (string, bool) { return strings.CutPrefix(out, filePrefix) }
