package image

import (
	"context"
	"path/filepath"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

func nobody(digest.Digest) string { return "" }

// While an image is kept, and while users are asked, the other side waits or
// is refused.
func TestUseAndRemoveExcludeEachOther(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	write(t, dir, map[string]string{"a": "x"})
	img, release, err := s.Use(t.Context(), dir, Options{})
	must(t, err)
	d := img.Root.Digest
	if err := s.Remove(d, nobody); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("remove what is about to be used: %v", err)
	}
	release()
	begun, held := make(chan struct{}), make(chan error, 1)
	g := life.NewGroup(t.Context())
	must(t, s.Remove(d, func(digest.Digest) string {
		g.Go("hold", func(ctx context.Context) error {
			close(begun)
			_, _, err := s.Hold(ctx, d) // waits for the removal
			held <- err
			return nil
		})
		<-begun
		select {
		case err := <-held:
			t.Errorf("held in the middle of a removal: %v", err)
		default:
		}
		return ""
	}))
	must(t, g.Wait())
	if err := <-held; !errs.Is(err, errs.NotFound) {
		t.Errorf("held one that was removed: %v", err)
	}
	if len(s.kept) != 0 || len(s.going) != 0 {
		t.Errorf("left: %v, %v", s.kept, s.going)
	}
}

// Many use and remove the same images at once; who got one has it until
// released.
func TestUseWhileOthersRemove(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	s.mach = machine{root: t.TempDir()}
	write(t, dir, map[string]string{"a": "x"})
	write(t, s.mach.root, map[string]string{"etc/passwd": "root", "usr/x": "x"})
	for i, err := range life.Each(t.Context(), 200, 8, func(ctx context.Context, i int) error {
		if i%3 == 0 {
			all, err := s.List()
			for _, img := range all {
				if e := s.Remove(img.Root.Digest, nobody); !errs.Is(e, errs.FailedPrecondition) && !errs.Is(e, errs.NotFound) && e != nil {
					err = e
				}
			}
			return err
		}
		img, release, err := s.Use(ctx, []string{dir, "host"}[i%2], Options{})
		if err != nil {
			return err
		}
		defer release()
		_, err = s.Get(img.Root.Digest)
		return err
	}) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestNames(t *testing.T) {
	s, a, b := newStore(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"a": "x"})
	write(t, b, map[string]string{"b": "y"})
	one, err := s.Resolve(t.Context(), a, Options{})
	must(t, err)
	two, err := s.Resolve(t.Context(), b, Options{})
	must(t, err)
	must(t, s.SetName("app", one.Root.Digest))
	must(t, s.SetName("app", two.Root.Digest)) // it moves
	for _, ref := range []string{"app", "sha256:" + string(two.Root.Digest)[:8], string(two.Root.Digest)} {
		if img, err := s.Lookup(ref); err != nil || img.Root.Digest != two.Root.Digest || img.Name != "app" {
			t.Errorf("%s: %+v, %v", ref, img, err)
		}
	}
	if img, err := s.Resolve(t.Context(), "app", Options{}); err != nil || img.Root.Digest != two.Root.Digest {
		t.Errorf("resolved: %+v, %v", img, err)
	}
	for _, bad := range []string{"host", "", "A", "../x", "deadbeef01"} {
		if err := s.SetName(bad, one.Root.Digest); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	must(t, s.Remove(two.Root.Digest, nobody))
	if left, err := filepath.Glob(filepath.Join(s.dir, namesName, "*")); err != nil || len(left) > 0 {
		t.Errorf("names left: %v, %v", left, err)
	}
}
