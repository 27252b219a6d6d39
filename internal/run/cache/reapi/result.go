package reapi

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/fabric/blob"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
)

// The node properties that carry what the protocol's strings cannot.
const (
	propName   = "brood:name"
	propTarget = "brood:target"
)

// escape makes a text that the protocol can carry, and the property that has
// the real one, nil when that is the same.
func escape(s, prop string) (string, *rexec.NodeProperty) {
	if utf8.ValidString(s) {
		return s, nil
	}
	var b strings.Builder
	for rest := s; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", rest[0])
		} else {
			b.WriteString(rest[:n])
		}
		rest = rest[n:]
	}
	return b.String(), &rexec.NodeProperty{Name: prop, Value: hex.EncodeToString([]byte(s))}
}

func unescape(s string, p *rexec.NodeProperties, prop string) string {
	for _, np := range p.GetProperties() {
		if np.GetName() == prop {
			if b, err := hex.DecodeString(np.GetValue()); err == nil {
				return string(b)
			}
		}
	}
	return s
}

// noMode is for what has no permissions of its own: links.
const noMode = ^uint32(0)

// properties collects what there is.
func properties(mode uint32, list ...*rexec.NodeProperty) *rexec.NodeProperties {
	p := &rexec.NodeProperties{}
	for _, np := range list {
		if np != nil {
			p.Properties = append(p.Properties, np)
		}
	}
	if mode != noMode {
		p.UnixMode = wrapperspb.UInt32(mode)
	}
	if p.UnixMode == nil && p.Properties == nil {
		return nil
	}
	return p
}

func digestOf(c entry.Content) *rexec.Digest {
	return blob.Digest{Hash: c.Digest, Size: c.Size}.Proto()
}

// encode makes the ActionResult of an entry, and the blobs that only it has.
func encode(e *entry.Entry) (*rexec.ActionResult, map[blob.Digest][]byte, error) {
	own := map[blob.Digest][]byte{}
	r := &rexec.ActionResult{StdoutDigest: digestOf(e.Log)}
	trees := newForest(e.Dirs)
	for _, f := range e.Files {
		if trees.file(f) {
			continue
		}
		name, np := escape(f.Path, propName)
		r.OutputFiles = append(r.OutputFiles, &rexec.OutputFile{Path: name, Digest: digestOf(f.Content),
			IsExecutable: f.Perm&0o100 != 0, NodeProperties: properties(f.Perm, np)})
	}
	for _, l := range e.Links {
		if trees.link(l) {
			continue
		}
		name, np := escape(l.Path, propName)
		to, tp := escape(l.Target, propTarget)
		r.OutputSymlinks = append(r.OutputSymlinks, &rexec.OutputSymlink{Path: name, Target: to, NodeProperties: properties(noMode, np, tp)})
	}
	for _, top := range trees.tops {
		tree := &rexec.Tree{}
		root, err := top.message(tree)
		if err != nil {
			return nil, nil, err
		}
		if root.NodeProperties == nil {
			root.NodeProperties = &rexec.NodeProperties{}
		}
		name, np := escape(top.path, propName)
		if np != nil {
			root.NodeProperties.Properties = append(root.NodeProperties.Properties, np)
		}
		tree.Root = root
		b, err := marshal(tree)
		if err != nil {
			return nil, nil, err
		}
		d := blob.Of(b)
		own[d] = b
		r.OutputDirectories = append(r.OutputDirectories, &rexec.OutputDirectory{Path: name, TreeDigest: d.Proto()})
	}
	meta, err := metadata(e)
	r.ExecutionMetadata = meta
	return r, own, err
}

func metadata(e *entry.Entry) (*rexec.ExecutedActionMetadata, error) {
	task, _ := escape(string(e.Task), "")
	s, err := structpb.NewStruct(map[string]any{
		"task": task, "cpuSeconds": e.Usage.CPU.Seconds(), "peakMemoryBytes": float64(e.Usage.PeakMemory), "sampled": e.Usage.Sampled,
	})
	if err != nil {
		return nil, err
	}
	aux, err := anypb.New(s)
	if err != nil {
		return nil, err
	}
	return &rexec.ExecutedActionMetadata{Worker: "brood", VirtualExecutionDuration: durationpb.New(e.Took), AuxiliaryMetadata: []*anypb.Any{aux}}, nil
}

// forest holds the output folders as trees.
type forest struct {
	tops []*folder
	at   map[string]*folder
}

type folder struct {
	path  string
	perm  uint32
	dirs  []*folder
	files []entry.File
	links []entry.Link
}

// newForest takes folders sorted by path.
func newForest(dirs []entry.Dir) *forest {
	f := &forest{at: make(map[string]*folder, len(dirs))}
	for _, d := range dirs {
		n := &folder{path: d.Path, perm: d.Perm}
		f.at[d.Path] = n
		if up := f.at[path.Dir(d.Path)]; up != nil {
			up.dirs = append(up.dirs, n)
		} else {
			f.tops = append(f.tops, n)
		}
	}
	return f
}

func (f *forest) file(file entry.File) bool {
	n := f.at[path.Dir(file.Path)]
	if n != nil {
		n.files = append(n.files, file)
	}
	return n != nil
}

func (f *forest) link(l entry.Link) bool {
	n := f.at[path.Dir(l.Path)]
	if n != nil {
		n.links = append(n.links, l)
	}
	return n != nil
}

// message makes the Directory of a folder and adds those below it to the tree.
func (n *folder) message(tree *rexec.Tree) (*rexec.Directory, error) {
	d := &rexec.Directory{NodeProperties: properties(n.perm)}
	for _, f := range n.files {
		name, np := escape(path.Base(f.Path), propName)
		d.Files = append(d.Files, &rexec.FileNode{Name: name, Digest: digestOf(f.Content), IsExecutable: f.Perm&0o100 != 0, NodeProperties: properties(f.Perm, np)})
	}
	for _, l := range n.links {
		name, np := escape(path.Base(l.Path), propName)
		to, tp := escape(l.Target, propTarget)
		d.Symlinks = append(d.Symlinks, &rexec.SymlinkNode{Name: name, Target: to, NodeProperties: properties(noMode, np, tp)})
	}
	for _, sub := range n.dirs {
		child, err := sub.message(tree)
		if err != nil {
			return nil, err
		}
		name, np := escape(path.Base(sub.path), propName)
		if np != nil { // a DirectoryNode has no properties: the folder itself says its name
			child.NodeProperties.Properties = append(child.NodeProperties.Properties, np)
		}
		b, err := marshal(child)
		if err != nil {
			return nil, err
		}
		tree.Children = append(tree.Children, child)
		d.Directories = append(d.Directories, &rexec.DirectoryNode{Name: name, Digest: blob.Of(b).Proto()})
	}
	slices.SortFunc(d.Files, func(a, b *rexec.FileNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Symlinks, func(a, b *rexec.SymlinkNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Directories, func(a, b *rexec.DirectoryNode) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// decode makes an entry of an ActionResult, fetching the trees that it names.
func (c *Cache) decode(ctx context.Context, r *rexec.ActionResult) (*entry.Entry, error) {
	e := &entry.Entry{}
	var err error
	if e.Log, err = stdout(r); err != nil {
		return nil, err
	}
	for _, f := range r.GetOutputFiles() {
		if err := addFile(e, unescape(f.GetPath(), f.GetNodeProperties(), propName), f.GetDigest(), perm(f.GetNodeProperties(), f.GetIsExecutable())); err != nil {
			return nil, err
		}
	}
	for _, l := range r.GetOutputSymlinks() {
		e.Links = append(e.Links, entry.Link{Path: unescape(l.GetPath(), l.GetNodeProperties(), propName), Target: unescape(l.GetTarget(), l.GetNodeProperties(), propTarget)})
	}
	trees := planter{e: e}
	for _, d := range r.GetOutputDirectories() {
		td, err := blob.FromProto(d.GetTreeDigest())
		if err != nil {
			return nil, err
		}
		if td.Size > entry.Most {
			return nil, errs.New(errs.DataLoss, "the tree of %.200q has %d bytes", d.GetPath(), td.Size)
		}
		b, err := c.client.Fetch(ctx, td)
		if err != nil {
			return nil, err
		}
		if err := trees.add(d.GetPath(), b); err != nil {
			return nil, err
		}
	}
	e.Took = r.GetExecutionMetadata().GetVirtualExecutionDuration().AsDuration()
	for _, a := range r.GetExecutionMetadata().GetAuxiliaryMetadata() {
		s := &structpb.Struct{}
		if a.UnmarshalTo(s) != nil {
			continue // somebody else's
		}
		f := s.GetFields()
		e.Task = id.Task(f["task"].GetStringValue())
		e.Usage = run.Usage{CPU: time.Duration(f["cpuSeconds"].GetNumberValue() * float64(time.Second)),
			PeakMemory: int64(f["peakMemoryBytes"].GetNumberValue()), Sampled: f["sampled"].GetBoolValue()}
	}
	return e, nil
}

func stdout(r *rexec.ActionResult) (entry.Content, error) {
	if r.GetStdoutDigest() == nil {
		raw := append([]byte{}, r.GetStdoutRaw()...)
		return entry.Content{Digest: blob.Of(raw).Hash, Size: int64(len(raw)), Inline: raw}, nil
	}
	d, err := blob.FromProto(r.GetStdoutDigest())
	return entry.Content{Digest: d.Hash, Size: d.Size}, err
}

func perm(p *rexec.NodeProperties, executable bool) uint32 {
	switch {
	case p.GetUnixMode() != nil:
		return p.GetUnixMode().GetValue() & 0o777
	case executable:
		return 0o755
	}
	return 0o644
}

func addFile(e *entry.Entry, name string, p *rexec.Digest, mode uint32) error {
	d, err := blob.FromProto(p)
	if err != nil {
		return err
	}
	e.Files = append(e.Files, entry.File{Path: name, Perm: mode, Content: entry.Content{Digest: d.Hash, Size: d.Size}})
	return nil
}

// deepest bounds how far folders of a tree may be nested.
const deepest = 4096

// What the trees of a result may stand for, all of them together: a folder may
// be named any number of times, so that a small tree has any number of outputs,
// with paths of any length. An entry has no more either, see entry.Most.
const (
	most      = 1_000_000
	mostBytes = 64 << 20 // of paths and targets
)

// planter adds what is in trees to an entry.
type planter struct {
	e        *entry.Entry
	children map[string]*rexec.Directory // of the tree that is added
	count    int
	bytes    int
}

// add adds what a Tree message holds below name.
func (p *planter) add(name string, b []byte) error {
	tree := &rexec.Tree{}
	if err := proto.Unmarshal(b, tree); err != nil {
		return errs.New(errs.DataLoss, "the tree of %.200q is damaged: %w", name, err)
	}
	p.children = make(map[string]*rexec.Directory, len(tree.GetChildren()))
	for _, c := range tree.GetChildren() {
		raw, err := marshal(c)
		if err != nil {
			return err
		}
		p.children[blob.Of(raw).String()] = c
	}
	return p.plant("", unescape(name, tree.GetRoot().GetNodeProperties(), propName), tree.GetRoot(), 0)
}

// below makes the path of an output in a folder, if one more may be. target is
// that of a link.
func (p *planter) below(folder, name, target string) (string, error) {
	p.count++
	p.bytes += len(folder) + 1 + len(name) + len(target)
	if p.count > most || p.bytes > mostBytes {
		return "", errs.New(errs.DataLoss, "the trees of the result are too large: more than %d outputs, or %d bytes of paths", most, mostBytes)
	}
	if folder == "" {
		return name, nil
	}
	return folder + "/" + name, nil
}

func (p *planter) plant(folder, name string, d *rexec.Directory, depth int) error {
	if depth > deepest {
		return errs.New(errs.DataLoss, "the tree of %.200q is too deep", folder)
	}
	here, err := p.below(folder, name, "")
	if err != nil {
		return err
	}
	mode := uint32(0o755)
	if m := d.GetNodeProperties().GetUnixMode(); m != nil {
		mode = m.GetValue() & 0o777
	}
	p.e.Dirs = append(p.e.Dirs, entry.Dir{Path: here, Perm: mode})
	for _, f := range d.GetFiles() {
		at, err := p.below(here, unescape(f.GetName(), f.GetNodeProperties(), propName), "")
		if err != nil {
			return err
		}
		if err := addFile(p.e, at, f.GetDigest(), perm(f.GetNodeProperties(), f.GetIsExecutable())); err != nil {
			return err
		}
	}
	for _, l := range d.GetSymlinks() {
		target := unescape(l.GetTarget(), l.GetNodeProperties(), propTarget)
		at, err := p.below(here, unescape(l.GetName(), l.GetNodeProperties(), propName), target)
		if err != nil {
			return err
		}
		p.e.Links = append(p.e.Links, entry.Link{Path: at, Target: target})
	}
	for _, sub := range d.GetDirectories() {
		cd, err := blob.FromProto(sub.GetDigest())
		if err != nil {
			return err
		}
		child := p.children[cd.String()]
		if child == nil {
			return errs.New(errs.DataLoss, "the tree of %.200q lacks a folder", here)
		}
		if err := p.plant(here, unescape(sub.GetName(), child.GetNodeProperties(), propName), child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
