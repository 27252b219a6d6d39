package image

import (
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// SetName gives an image a name, which moves here from the image that has it.
func (s *Store) SetName(name string, d digest.Digest) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return home.DiskError(importedSchema.Write(s.nameFile(name), imported{Image: d}, home.Durable), "name image %s", d.Short())
}

// CheckName says whether an image can have a name.
func CheckName(name string) error {
	if _, err := id.ParseName("image", name); err != nil {
		return err
	}
	if name == string(Host) {
		return errs.New(errs.InvalidArgument, "image name %q means this machine's root: use another", name)
	}
	if digestStart(name) {
		return errs.New(errs.InvalidArgument, "image name %q looks like the beginning of a digest: use another", name)
	}
	return nil
}

func (s *Store) nameFile(name string) string {
	return filepath.Join(s.dir, namesName, name+".json")
}

// named returns the image that has a name.
func (s *Store) named(name string) (digest.Digest, bool) {
	if CheckName(name) != nil {
		return "", false
	}
	var to imported
	if importedSchema.Read(s.nameFile(name), &to) != nil {
		return "", false
	}
	return to.Image, true
}

// names are the names of all images.
func (s *Store) names() map[digest.Digest]string {
	all := map[digest.Digest]string{}
	entries, _ := os.ReadDir(filepath.Join(s.dir, namesName)) // one that cannot be read has no names
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if d, here := s.named(name); ok && here {
			all[d] = strings.TrimPrefix(all[d]+", "+name, ", ")
		}
	}
	return all
}

// parse is parseRef that knows the names.
func (s *Store) parse(ref string) (reference, error) {
	if d, ok := s.named(ref); ok {
		return reference{digest: d}, nil
	}
	return parseRef(ref)
}

// Lookup returns an image that is here by its name, its digest, or at least
// the first eight digits of that, with or without "sha256:".
func (s *Store) Lookup(ref string) (Image, error) {
	if d, ok := s.named(ref); ok {
		img, err := s.Get(d)
		img.Name = ref
		return img, err
	}
	all, err := s.List()
	if err != nil {
		return Image{}, err
	}
	start := strings.TrimPrefix(ref, "sha256:")
	var found []Image
	for _, img := range all {
		if digestStart(start) && strings.HasPrefix(string(img.Root.Digest), start) {
			found = append(found, img)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Image{}, errs.New(errs.NotFound, "no image is called %.80q here: `brood image ls` shows those there are; a digest is written with at least 8 of its digits", ref)
	}
	return Image{}, errs.New(errs.InvalidArgument, "%.80q is the beginning of several digests: write more of it", ref)
}

// digestStart says whether s can be the beginning of a digest.
func digestStart(s string) bool {
	return len(s) >= 8 && strings.Trim(s, "0123456789abcdef") == ""
}
