package main

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pack is one pinned package.
type pack struct {
	name    string // as the registry knows it
	version string
	dir     string // where it goes, from the root: node_modules/…
	sum     [sha512.Size]byte
}

func (p pack) String() string { return p.name + "@" + p.version }

// tarball is the path of the package's tarball on a registry.
func (p pack) tarball() string {
	base := p.name[strings.LastIndex(p.name, "/")+1:]
	return p.name + "/-/" + base + "-" + p.version + ".tgz"
}

// lockEntry is what we read of an entry of npm's lock.
type lockEntry struct {
	Name      string    `json:"name"` // only when it differs from the folder's
	Version   string    `json:"version"`
	Integrity string    `json:"integrity"`
	Link      bool      `json:"link"`
	InBundle  bool      `json:"inBundle"` // it comes inside of the package above it
	OS        oneOrMore `json:"os"`
	CPU       oneOrMore `json:"cpu"`
}

// oneOrMore is a string or a list of strings.
type oneOrMore []string

func (o *oneOrMore) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(o))
}

// allows says whether a list of npm's os or cpu field lets value in: no list
// means all, "!x" all but x.
func (o oneOrMore) allows(value string) bool {
	if slices.Contains(o, "!"+value) {
		return false
	}
	wants := slices.DeleteFunc(slices.Clone(o), func(s string) bool { return strings.HasPrefix(s, "!") })
	return len(wants) == 0 || slices.Contains(wants, value)
}

var (
	nameForm    = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`)
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
)

// parseLock returns the packages of a lock that belong on the platform, in
// the order of their folders.
func parseLock(raw []byte, on platform) ([]pack, error) {
	var lock struct {
		Version  int                  `json:"lockfileVersion"`
		Packages map[string]lockEntry `json:"packages"`
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, fmt.Errorf("read package-lock.json: %w", err)
	}
	if lock.Version != 3 {
		return nil, fmt.Errorf("package-lock.json has lockfileVersion %d, only 3 is read: write it with npm 9 or newer", lock.Version)
	}
	var all []pack
	for dir, entry := range lock.Packages {
		if dir == "" || entry.InBundle || !entry.OS.allows(on.os) || !entry.CPU.allows(on.cpu) {
			continue // the root itself, part of another, or another platform's
		}
		p, err := entry.pack(dir)
		if err != nil {
			return nil, fmt.Errorf("package-lock.json, %q: %w", dir, err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("package-lock.json has no package for %s", on)
	}
	slices.SortFunc(all, func(a, b pack) int { return strings.Compare(a.dir, b.dir) })
	return all, nil
}

func (e lockEntry) pack(dir string) (pack, error) {
	const modules = "node_modules/"
	if !strings.HasPrefix(dir, modules) || !filepath.IsLocal(dir) || filepath.ToSlash(filepath.Clean(dir)) != dir {
		return pack{}, errors.New("is no folder below node_modules")
	}
	p := pack{name: e.Name, version: e.Version, dir: dir}
	if p.name == "" {
		p.name = dir[strings.LastIndex(dir, modules)+len(modules):]
	}
	if !nameForm.MatchString(p.name) || !versionForm.MatchString(p.version) {
		return pack{}, fmt.Errorf("%q at version %q is no package of a registry", p.name, p.version)
	}
	sum, ok := strings.CutPrefix(e.Integrity, "sha512-")
	raw, err := base64.StdEncoding.DecodeString(sum)
	if e.Link || !ok || err != nil || len(raw) != sha512.Size {
		return pack{}, fmt.Errorf("integrity %q is no SHA-512", e.Integrity)
	}
	copy(p.sum[:], raw)
	return p, nil
}
