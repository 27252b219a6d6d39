package image

import (
	"context"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// Use is Resolve for whoever makes something that stands on the image: until
// release is called the image stays. By then those who say what is in use
// know the maker.
func (s *Store) Use(ctx context.Context, ref string, opts Options) (img Image, release func(), err error) {
	for {
		if img, err = s.Resolve(ctx, ref, opts); err != nil {
			return Image{}, nil, err
		}
		ready := func() error { _, err := s.Get(img.Root.Digest); return err }
		if release, err = s.keepIf(ctx, img.Root.Digest, ready); !errs.Is(err, errs.NotFound) {
			return img, release, err
		}
		// It was removed before it was kept: find or make it again.
	}
}

// Hold is Use for an image that is here.
func (s *Store) Hold(ctx context.Context, d digest.Digest) (img Image, release func(), err error) {
	release, err = s.keepIf(ctx, d, func() (err error) { img, err = s.Get(d); return err })
	return img, release, err
}

// keepIf is keep for an image that must be there.
func (s *Store) keepIf(ctx context.Context, d digest.Digest, there func() error) (release func(), err error) {
	if release, err = s.keep(ctx, d); err != nil {
		return nil, err
	}
	if err := there(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// keep makes removals of an image be refused. It waits for one under way, so
// that whether the image is there does not change afterwards.
func (s *Store) keep(ctx context.Context, d digest.Digest) (release func(), err error) {
	for {
		s.mu.Lock()
		going := s.going[d]
		if going == nil {
			s.kept[d]++
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.kept[d]--; s.kept[d] == 0 {
					delete(s.kept, d)
				}
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-going:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim takes an image for its removal; false when somebody keeps it or
// removes it.
func (s *Store) claim(d digest.Digest) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[d] > 0 || s.going[d] != nil {
		return nil, false
	}
	ended := make(chan struct{})
	s.going[d] = ended
	return func() {
		s.mu.Lock()
		delete(s.going, d)
		delete(s.checked, d)
		s.mu.Unlock()
		close(ended)
	}, true
}
