package image

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox"
)

// Kind says what an image was made from.
type Kind string

// The kinds of images.
const (
	Host   Kind = "host"
	Folder Kind = "dir"
	Tar    Kind = "tar"
)

// Image is a root filesystem that is here and ready.
type Image struct {
	Ref     string // what it was asked for by
	Name    string // what people call it, if it was looked up or listed
	Kind    Kind
	Root    sandbox.Root
	Size    int64 // bytes on disk, without what Host mounts
	Created time.Time
	Config  Config
	// Notes say what of the source is not in the image, for people.
	Notes []string
}

// Config is what an image says about the program to run. A folder and a tar
// say nothing.
type Config struct {
	Cmd     []string `json:"cmd,omitempty"`
	Env     []string `json:"env,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	User    string   `json:"user,omitempty"`
}

// GuestBinary is our program for the inside of a sandbox. It is put into
// every image, so its digest is a part of what an image is.
type GuestBinary struct {
	Bytes  []byte
	Digest digest.Digest
}

// Where the guest program lies in every sandbox.
const (
	GuestDir  = "/.brood/bin"
	GuestPath = GuestDir + "/brood-guest"
)

// Options are the parameters of Resolve that are not always given.
type Options struct {
	Mounts []sandbox.Bind // more folders and files of this machine; Host only
	// Progress, when not nil, is told how many bytes of the source are read.
	// total is an estimate.
	Progress func(done, total int64)
}

// ParseMount reads SRC:DST[:ro], both absolute.
func ParseMount(s string) (sandbox.Bind, error) {
	bad := func() (sandbox.Bind, error) {
		return sandbox.Bind{}, errs.New(errs.InvalidArgument, "mount %.200q is not valid: write SRC:DST or SRC:DST:ro, both absolute", s)
	}
	parts := strings.Split(s, ":")
	readOnly := len(parts) == 3 && parts[2] == "ro"
	if len(parts) != 2 && !readOnly {
		return bad()
	}
	if !filepath.IsAbs(parts[0]) || !path.IsAbs(parts[1]) {
		return bad()
	}
	return sandbox.Bind{Source: filepath.Clean(parts[0]), Target: path.Clean(parts[1]), ReadOnly: readOnly}, nil
}
