package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
)

// Users says who needs an image, by name; "" when nobody does. It is asked
// while nobody can begin to use that image.
type Users func(digest.Digest) string

// Remove deletes an image that nobody needs, and the names it had.
func (s *Store) Remove(d digest.Digest, users Users) error {
	if _, err := digest.Parse(string(d)); err != nil {
		return err
	}
	release, ok := s.claim(d)
	if !ok {
		return errs.New(errs.FailedPrecondition, "image %s is in use by something that is being made of it: try again when that is done", d.Short())
	}
	defer release()
	if who := users(d); who != "" {
		return errs.New(errs.FailedPrecondition, "image %s is in use by %s: remove that first", d.Short(), who)
	}
	for _, folder := range []string{string(d), hostPrefix + string(d)} {
		if s.has(folder) {
			return errors.Join(s.forget(d), s.removeFolder(d, folder))
		}
	}
	return errs.New(errs.NotFound, "image %s is not here", d.Short())
}

func (s *Store) removeFolder(d digest.Digest, folder string) error {
	from := filepath.Join(s.dir, folder)
	if mounts, err := mountsBelow(from); err != nil || len(mounts) > 0 {
		return errors.Join(err, errs.New(errs.FailedPrecondition, "image %s is mounted by a sandbox: remove that first", d.Short()))
	}
	at("remove:begun")
	aside := s.hidden("gone")
	if err := os.Rename(from, aside); err != nil {
		return home.DiskError(err, "remove image %s", d.Short())
	}
	at("remove:renamed")
	return home.DiskError(removeTree(aside), "remove image %s", d.Short())
}

// forget drops what leads to an image: its names, and what it was made from.
func (s *Store) forget(d digest.Digest) error {
	var all error
	for _, dir := range []string{sourcesName, namesName} {
		entries, err := os.ReadDir(filepath.Join(s.dir, dir))
		if err != nil {
			return home.DiskError(err, "remove image %s", d.Short())
		}
		for _, e := range entries {
			file := filepath.Join(s.dir, dir, e.Name())
			var to imported
			if strings.HasSuffix(e.Name(), ".json") && importedSchema.Read(file, &to) == nil && to.Image == d {
				if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
					all = errors.Join(all, err)
				}
			}
		}
	}
	return all
}

// OldHosts returns the images of this machine's root as it was: all but the
// one that a sandbox would be made from now.
func (s *Store) OldHosts() ([]Image, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var hosts []Image
	for _, img := range all {
		if img.Kind == Host {
			hosts = append(hosts, img)
		}
	}
	if len(hosts) == 0 {
		return nil, nil
	}
	p, err := s.planHost(nil)
	if err != nil {
		return nil, err
	}
	now := p.digest()
	var old []Image
	for _, img := range hosts {
		if img.Root.Digest != now {
			old = append(old, img)
		}
	}
	return old, nil
}
