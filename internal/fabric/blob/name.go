package blob

import (
	"strconv"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// Name is the name of a resource of the ByteStream service.
type Name struct {
	Instance string
	// Upload is the random id of an upload; empty in the name of a download.
	Upload string
	// Zstd says that the stream is compressed; the digest is of what it holds.
	Zstd bool
	Blob Digest
}

const (
	maxName     = 4096
	maxInstance = 256
)

// String writes the name as the protocol wants it.
func (n Name) String() string {
	var b strings.Builder
	if n.Instance != "" {
		b.WriteString(n.Instance + "/")
	}
	if n.Upload != "" {
		b.WriteString("uploads/" + n.Upload + "/")
	}
	if n.Zstd {
		b.WriteString("compressed-blobs/zstd/")
	} else {
		b.WriteString("blobs/")
	}
	b.WriteString(n.Blob.String())
	return b.String()
}

// reserved are the words that no part of an instance's name may be.
var reserved = map[string]bool{
	"blobs": true, "uploads": true, "actions": true, "actionResults": true, "operations": true,
	"capabilities": true, "compressed-blobs": true,
}

// CheckInstance refuses a name of an instance that could not be told from the
// rest of a resource's name.
func CheckInstance(s string) error {
	if s == "" {
		return nil
	}
	if len(s) > maxInstance {
		return errs.New(errs.InvalidArgument, "the instance name has %d characters: at most %d are taken", len(s), maxInstance)
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." || reserved[part] || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errs.New(errs.InvalidArgument, "the instance name %q has a part that it may not have: %q", s, part)
		}
	}
	return nil
}

// ParseRead reads the name of a download.
func ParseRead(s string) (Name, error) { return parseName(s, false) }

// ParseWrite reads the name of an upload. Whatever follows the size is the
// client's and is left out.
func ParseWrite(s string) (Name, error) { return parseName(s, true) }

func parseName(s string, upload bool) (Name, error) {
	bad := func(why string) (Name, error) {
		return Name{}, errs.New(errs.InvalidArgument, "resource name %.300q: %s", s, why)
	}
	if len(s) > maxName {
		return bad("it is too long")
	}
	parts := strings.Split(s, "/")
	at := 0
	for at < len(parts) && !reserved[parts[at]] {
		at++
	}
	n := Name{Instance: strings.Join(parts[:at], "/")}
	if err := CheckInstance(n.Instance); err != nil || at > 0 && n.Instance == "" {
		return bad("the instance name is not valid")
	}
	parts = parts[at:]
	if upload {
		if len(parts) < 2 || parts[0] != "uploads" || parts[1] == "" {
			return bad("an upload is [INSTANCE/]uploads/UUID/blobs/HASH/SIZE")
		}
		n.Upload = parts[1]
		parts = parts[2:]
	}
	switch {
	case len(parts) >= 1 && parts[0] == "blobs":
		parts = parts[1:]
	case len(parts) >= 2 && parts[0] == "compressed-blobs" && parts[1] == "zstd":
		n.Zstd = true
		parts = parts[2:]
	case len(parts) >= 2 && parts[0] == "compressed-blobs":
		return bad("the only compressor is zstd")
	default:
		return bad("it names neither blobs nor compressed-blobs")
	}
	// Clients may name the function though they should not.
	if len(parts) > 0 && parts[0] == "sha256" {
		parts = parts[1:]
	}
	if len(parts) < 2 || !upload && len(parts) > 2 {
		return bad("it must end in HASH/SIZE, with a SHA-256 in lower-case hex")
	}
	hash, err := digest.Parse(parts[0])
	if err != nil {
		return bad("its hash is not a SHA-256 in lower-case hex")
	}
	size, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || size < 0 || parts[1] != strconv.FormatInt(size, 10) {
		return bad("its size is not a number")
	}
	n.Blob = Digest{Hash: hash, Size: size}
	if (n.Blob.Size == 0) != (n.Blob.Hash == Empty.Hash) {
		return bad("its size is not that of its hash")
	}
	return n, nil
}

// uuid draws the id of an upload: version 4 of RFC 4122.
func uuid() string {
	h := []byte(id.Random(16))
	h[12] = '4'
	h[16] = "89ab"[h[16]&3]
	s := string(h)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
