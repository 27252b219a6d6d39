package image

import (
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// reference is a parsed ref.
type reference struct {
	kind   Kind
	path   string        // of a folder or tar
	digest digest.Digest // of an image that is here; then kind is empty
}

var tarEndings = []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2"}

func isTarName(s string) bool {
	for _, e := range tarEndings {
		if strings.HasSuffix(s, e) {
			return true
		}
	}
	return false
}

// parseRef says what a ref means. Paths are absolute: the daemon's own folder
// means nothing to the one who asks.
func parseRef(ref string) (reference, error) {
	if ref == "" || ref == "host" {
		return reference{kind: Host}, nil
	}
	if sum, ok := strings.CutPrefix(ref, "sha256:"); ok {
		d, err := digest.Parse(sum)
		return reference{digest: d}, err
	}
	if p, ok := strings.CutPrefix(ref, "dir:"); ok {
		return withPath(Folder, p)
	}
	if p, ok := strings.CutPrefix(ref, "tar:"); ok {
		return withPath(Tar, p)
	}
	if !filepath.IsAbs(ref) && !strings.HasPrefix(ref, ".") && !isTarName(ref) {
		return reference{}, errs.New(errs.Unsupported,
			"image %.200q: images from registries and OCI layouts are not supported: use host, a folder, or a tar of a root filesystem such as docker export writes", ref)
	}
	if isTarName(ref) {
		if st, err := os.Stat(ref); err != nil || !st.IsDir() {
			return withPath(Tar, ref)
		}
	}
	return withPath(Folder, ref)
}

func withPath(kind Kind, p string) (reference, error) {
	if !filepath.IsAbs(p) {
		return reference{}, errs.New(errs.InvalidArgument, "image path %.200q must be absolute", p)
	}
	return reference{kind: kind, path: filepath.Clean(p)}, nil
}
