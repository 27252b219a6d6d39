package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
)

// Format is the manifest format this brood writes.
const Format = 1

// maxManifest bounds what is read: about 700,000 chunks, 40 GiB of memory.
const maxManifest = 64 << 20

// Capture says what a checkpoint holds.
type Capture string

// The kinds of captures.
const (
	Memory Capture = "memory" // memory, processes and disk; forks go on
	Disk   Capture = "disk"   // the disk only; forks start the command
)

// BaseKind says what a sandbox's root filesystem is made from.
type BaseKind string

// The kinds of bases.
const (
	EROFS BaseKind = "erofs" // an image file, by its digest
	Host  BaseKind = "host"  // the root of one machine
)

// Needs is what a machine must have to restore a checkpoint.
type Needs struct {
	Arch   string   `json:"arch"`             // as GOARCH
	CPU    []string `json:"cpu,omitempty"`    // features, sorted
	Kernel string   `json:"kernel,omitempty"` // release it was made on; for information
}

// Base is the root filesystem that a checkpoint lies on.
type Base struct {
	Kind   BaseKind      `json:"kind"`
	Digest digest.Digest `json:"digest"`
	// Machine is the fingerprint of the only machine that has a Host base.
	Machine digest.Digest `json:"machine,omitempty"`
	// Open are the files of a Host base that were open at the capture: the
	// restored processes map them, so they must not have changed.
	Open []Stamp `json:"open,omitempty"`
}

// Stamp tells whether a file changed. Path is relative to the sandbox's root.
type Stamp struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	MtimeNs int64  `json:"mtime_ns"`
}

// File is one file of a checkpoint.
type File struct {
	Path   string        `json:"path"` // relative to the files' folder, with slashes
	Size   int64         `json:"size"`
	SHA256 digest.Digest `json:"sha256"`
	Cut    Cut           `json:"cut"`
	Chunks []Chunk       `json:"chunks"` // in order, together the whole file
}

// Chunk is a piece of a file, found by its content. It is written as
// "size:sha256".
type Chunk struct {
	Size   int64
	SHA256 digest.Digest
}

// MarshalText writes "size:sha256".
func (c Chunk) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%s", c.Size, c.SHA256), nil
}

// UnmarshalText reads what MarshalText wrote and nothing else.
func (c *Chunk) UnmarshalText(b []byte) error {
	size, sum, _ := strings.Cut(string(b), ":")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 1 || n > maxChunk || strconv.FormatInt(n, 10) != size {
		return errs.New(errs.DataLoss, "chunk %.80q has no valid size", b)
	}
	d, err := digest.Parse(sum)
	if err != nil {
		return err
	}
	c.Size, c.SHA256 = n, d
	return nil
}

// Manifest says what a checkpoint consists of and what it needs. Its
// canonical bytes are the checkpoint: their SHA-256 is its digest. There is
// no name, time, absolute path or host name in it.
type Manifest struct {
	Format     int           `json:"format"`
	Driver     string        `json:"driver"`
	Runtime    id.Runtime    `json:"runtime"`
	Capture    Capture       `json:"capture"`
	Needs      Needs         `json:"needs"`
	Shape      sandbox.Shape `json:"shape"`
	Base       Base          `json:"base"`
	Parent     digest.Digest `json:"parent,omitempty"`
	MemoryUsed uint64        `json:"memory_used"` // bytes at the capture
	Files      []File        `json:"files"`       // sorted by path
}

// Encode returns the canonical bytes and their digest.
func (m *Manifest) Encode() ([]byte, digest.Digest, error) {
	if err := m.validate(); err != nil {
		return nil, "", err
	}
	b, err := canonical(m)
	if err != nil {
		return nil, "", err
	}
	if len(b) > maxManifest {
		return nil, "", errs.New(errs.ResourceExhausted, "a manifest of %d bytes is larger than %d", len(b), maxManifest)
	}
	return b, digest.Of(b), nil
}

// DecodeManifest reads a manifest, which may come from another machine. Only
// the canonical encoding is accepted: anything else would have two digests.
func DecodeManifest(b []byte) (*Manifest, digest.Digest, error) {
	if len(b) > maxManifest {
		return nil, "", errs.New(errs.DataLoss, "a manifest of %d bytes is larger than %d", len(b), maxManifest)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Format < 1 {
		return nil, "", errs.New(errs.DataLoss, "manifest is damaged: no format number")
	}
	if head.Format > Format {
		return nil, "", errs.New(errs.Unsupported, "manifest has format %d and this brood knows up to %d: a newer brood wrote it, use that one", head.Format, Format)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, "", errs.New(errs.DataLoss, "manifest is damaged: %w", err)
	}
	again, d, err := m.Encode()
	if err != nil {
		return nil, "", errs.New(errs.DataLoss, "manifest is damaged: %w", err)
	}
	if !bytes.Equal(again, b) {
		return nil, "", errs.New(errs.DataLoss, "manifest is damaged: it is not in canonical form")
	}
	return &m, d, nil
}

// Size returns the bytes of all files.
func (m *Manifest) Size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

func (m *Manifest) validate() error {
	bad := func(format string, args ...any) error {
		return errs.New(errs.InvalidArgument, "manifest: "+format, args...)
	}
	if m.Format != Format {
		return bad("format %d is not %d", m.Format, Format)
	}
	if m.Capture != Memory && m.Capture != Disk {
		return bad("capture %q is neither %s nor %s", m.Capture, Memory, Disk)
	}
	if m.Driver == "" || len(m.Driver) > id.MaxName || m.Needs.Arch == "" {
		return bad("driver %.80q and architecture %.80q must be given", m.Driver, m.Needs.Arch)
	}
	if !slices.IsSorted(m.Needs.CPU) {
		return bad("CPU features are not sorted")
	}
	if m.Parent != "" {
		if _, err := digest.Parse(string(m.Parent)); err != nil {
			return bad("parent: %w", err)
		}
	}
	if err := m.Base.validate(); err != nil {
		return bad("base: %w", err)
	}
	if len(m.Files) == 0 {
		return bad("no files")
	}
	for i := range m.Files {
		if err := m.Files[i].validate(); err != nil {
			return bad("file %.200q: %w", m.Files[i].Path, err)
		}
		if i > 0 && m.Files[i-1].Path >= m.Files[i].Path {
			return bad("files are not sorted, or one is there twice")
		}
	}
	return nil
}

func (b *Base) validate() error {
	if b.Kind != EROFS && b.Kind != Host {
		return errs.New(errs.InvalidArgument, "kind %.80q is neither %s nor %s", b.Kind, EROFS, Host)
	}
	if _, err := digest.Parse(string(b.Digest)); err != nil {
		return err
	}
	if b.Kind == EROFS && (b.Machine != "" || len(b.Open) > 0) {
		return errs.New(errs.InvalidArgument, "an image is not bound to a machine")
	}
	if b.Kind == Host {
		if _, err := digest.Parse(string(b.Machine)); err != nil {
			return errs.New(errs.InvalidArgument, "machine: %w", err)
		}
	}
	for i := range b.Open {
		if err := checkPath(b.Open[i].Path); err != nil {
			return err
		}
		if i > 0 && b.Open[i-1].Path >= b.Open[i].Path {
			return errs.New(errs.InvalidArgument, "open files are not sorted, or one is there twice")
		}
	}
	return nil
}

func (f *File) validate() error {
	if err := checkPath(f.Path); err != nil {
		return err
	}
	if _, err := digest.Parse(string(f.SHA256)); err != nil {
		return err
	}
	if f.Cut != ByContent && f.Cut != ByOffset {
		return errs.New(errs.InvalidArgument, "cut %.80q is neither %s nor %s", f.Cut, ByContent, ByOffset)
	}
	var n int64
	for _, c := range f.Chunks {
		if c.Size < 1 || c.Size > maxChunk || n > 1<<62-c.Size {
			return errs.New(errs.InvalidArgument, "chunk of %d bytes", c.Size)
		}
		if _, err := digest.Parse(string(c.SHA256)); err != nil {
			return err
		}
		n += c.Size
	}
	if n != f.Size || n == 0 {
		return errs.New(errs.InvalidArgument, "chunks of together %d bytes for a size of %d", n, f.Size)
	}
	return nil
}

// maxPath bounds a path in a manifest: longer ones no system opens.
const maxPath = 4096

// checkPath accepts a clean relative path that stays below its folder and is
// valid on every system.
func checkPath(p string) error {
	if p == "" || len(p) > maxPath || path.IsAbs(p) || path.Clean(p) != p || p == "." ||
		p == ".." || strings.HasPrefix(p, "../") || strings.ContainsAny(p, "\x00\\") {
		return errs.New(errs.InvalidArgument, "path %.200q is not a clean relative one", p)
	}
	return nil
}
