package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
)

// Names in the images' folder. An EROFS image is a folder named by its
// digest, a host's skeleton one with hostPrefix before it.
const (
	hiddenPrefix = "."
	hostPrefix   = "host-"
	sourcesName  = "sources" // what was imported from where, to import it once
	namesName    = "names"   // what people call images
	recordName   = "image.json"
	erofsName    = "root.erofs"
	skeletonName = "root"
)

// record describes an image on disk.
type record struct {
	Ref     string         `json:"ref"`
	Kind    Kind           `json:"kind"`
	Digest  digest.Digest  `json:"digest"`
	Size    int64          `json:"size"`
	Created time.Time      `json:"created"`
	Binds   []sandbox.Bind `json:"binds,omitempty"`
	Config  Config         `json:"config"`
	Notes   []string       `json:"notes,omitempty"`
}

var recordSchema = home.Schema{Kind: "image", Format: 1}

// Store holds the images of one home.
type Store struct {
	home  *home.Home
	dir   string
	guest GuestBinary
	mach  machine

	copies copies

	mu      sync.Mutex // guards what follows; never held over I/O
	working map[string]chan struct{}
	checked map[digest.Digest]bool // skeletons that are whole
	kept    map[digest.Digest]int  // images that something is about to stand on
	going   map[digest.Digest]chan struct{}
}

// Open reads the images of a home and removes what killed processes left.
func Open(h *home.Home, guest GuestBinary) (*Store, error) {
	if len(guest.Bytes) == 0 || digest.Of(guest.Bytes) != guest.Digest {
		return nil, errs.New(errs.Internal, "the guest program is missing or is not what its digest says: run make build")
	}
	s := &Store{
		home: h, dir: h.Images(), guest: guest, mach: thisMachine, copies: copies{seen: map[string]copied{}},
		working: map[string]chan struct{}{}, checked: map[digest.Digest]bool{},
		kept: map[digest.Digest]int{}, going: map[digest.Digest]chan struct{}{},
	}
	for _, d := range []string{sourcesName, namesName} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o700); err != nil {
			return nil, errs.New(errs.FailedPrecondition, "images: %w", err)
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, errs.New(errs.FailedPrecondition, "images: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), hiddenPrefix) {
			if err := removeTree(filepath.Join(s.dir, e.Name())); err != nil {
				return nil, errs.New(errs.FailedPrecondition, "images: remove what was left half made: %w", err)
			}
		}
	}
	return s, nil
}

// removeTree is os.RemoveAll for a tree that a driver may have mounted
// something into: then it is left alone, because removing would go through
// the mounts.
func removeTree(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return errs.New(errs.FailedPrecondition, "%s is mounted: unmount it first", mounts[0])
	}
	return os.RemoveAll(dir)
}

// Resolve returns the image that ref names, making it if it is not here:
//
//	host                  this machine's root, and what opts.Mounts adds
//	dir:/path, /path      a folder; its files belong to root inside
//	tar:/path, /path.tar  a tar of a root filesystem; also gzip, zstd, bzip2
//	sha256:…, a name      an image that is here
//
// Whoever makes something that stands on it calls Use, so that the image is
// not removed meanwhile.
func (s *Store) Resolve(ctx context.Context, ref string, opts Options) (Image, error) {
	r, err := s.parse(ref)
	if err != nil {
		return Image{}, err
	}
	if len(opts.Mounts) > 0 && r.kind != Host {
		return Image{}, errs.New(errs.Unsupported, "image %.200q: mounts of this machine's folders work with the image host only", ref)
	}
	switch r.kind {
	case Host:
		return s.resolveHost(ctx, opts)
	case Folder, Tar:
		return s.resolveSource(ctx, r, opts)
	default:
		return s.Get(r.digest)
	}
}

// Get returns an image that is here, of either kind.
func (s *Store) Get(d digest.Digest) (Image, error) {
	if _, err := digest.Parse(string(d)); err != nil {
		return Image{}, err
	}
	for _, folder := range []string{string(d), hostPrefix + string(d)} {
		if img, err := s.load(folder); !errs.Is(err, errs.NotFound) {
			return img, err
		}
	}
	return Image{}, errs.New(errs.NotFound, "image %s is not here: import the folder or tar it was made from again", d.Short())
}

// load reads the image in one folder.
func (s *Store) load(folder string) (Image, error) {
	dir := filepath.Join(s.dir, folder)
	var r record
	if err := recordSchema.Read(filepath.Join(dir, recordName), &r); err != nil {
		return Image{}, err
	}
	img := Image{Ref: r.Ref, Kind: r.Kind, Root: sandbox.Root{Digest: r.Digest}, Size: r.Size, Created: r.Created, Config: r.Config, Notes: r.Notes}
	if r.Kind == Host {
		img.Root.Host = &sandbox.HostRoot{Dir: filepath.Join(dir, skeletonName), Binds: r.Binds}
		return img, nil
	}
	img.Root.EROFS = filepath.Join(dir, erofsName)
	st, err := os.Stat(img.Root.EROFS)
	if errors.Is(err, fs.ErrNotExist) && !s.has(folder) {
		return Image{}, errs.New(errs.NotFound, "image %s is not here", r.Digest.Short()) // removed meanwhile
	}
	if err != nil || st.Size() != r.Size {
		return Image{}, errs.New(errs.DataLoss, "image %s is damaged: remove it and import it again", r.Digest.Short())
	}
	return img, nil
}

func (s *Store) has(folder string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, folder))
	return err == nil
}

// List returns the images that can be read, newest first.
func (s *Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, errs.New(errs.Internal, "images: %w", err)
	}
	var all []Image
	names := s.names()
	for _, e := range entries {
		if _, err := digest.Parse(strings.TrimPrefix(e.Name(), hostPrefix)); err != nil {
			continue
		}
		if img, err := s.load(e.Name()); err == nil {
			img.Name = names[img.Root.Digest]
			all = append(all, img)
		}
	}
	slices.SortStableFunc(all, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return all, nil
}

// hidden returns a fresh name for something half made or half gone.
func (s *Store) hidden(what string) string {
	return filepath.Join(s.dir, hiddenPrefix+what+"-"+id.Random(8))
}

// alone waits until nobody else works under key, and returns what lets the
// next one in.
func (s *Store) alone(ctx context.Context, key string) (release func(), err error) {
	for {
		s.mu.Lock()
		busy, taken := s.working[key]
		if !taken {
			done := make(chan struct{})
			s.working[key] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.working, key)
				s.mu.Unlock()
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publish renames a finished folder to its name. One that is there already is
// the same image and stays.
func (s *Store) publish(tmp, folder string) error {
	final := filepath.Join(s.dir, folder)
	if err := os.Rename(tmp, final); err != nil {
		if _, e := s.load(folder); e == nil {
			return removeTree(tmp)
		}
		return err
	}
	return home.SyncDir(s.dir)
}
