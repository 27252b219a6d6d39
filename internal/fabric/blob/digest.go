package blob

import (
	"strconv"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// Digest names a blob: its SHA-256 and its size in bytes.
type Digest struct {
	Hash digest.Digest
	Size int64
}

// Empty is the digest of no bytes: a blob that every server has, sent or not.
var Empty = Of(nil)

// Of returns the digest of b.
func Of(b []byte) Digest { return Digest{Hash: digest.Of(b), Size: int64(len(b))} }

func (d Digest) String() string { return string(d.Hash) + "/" + strconv.FormatInt(d.Size, 10) }

// Proto gives d as the protocol writes it.
func (d Digest) Proto() *rexec.Digest {
	return &rexec.Digest{Hash: string(d.Hash), SizeBytes: d.Size}
}

// FromProto checks a digest that came from outside.
func FromProto(p *rexec.Digest) (Digest, error) {
	hash, err := digest.Parse(p.GetHash())
	if err != nil {
		return Digest{}, err
	}
	if p.GetSizeBytes() < 0 {
		return Digest{}, errs.New(errs.InvalidArgument, "digest %s has a size below zero: %d", hash, p.GetSizeBytes())
	}
	d := Digest{Hash: hash, Size: p.GetSizeBytes()}
	if d.Size == 0 && d != Empty {
		return Digest{}, errs.New(errs.InvalidArgument, "digest %s has size 0 and is not that of the empty blob", hash)
	}
	return d, nil
}

// Check compares what a blob should be with what was counted and hashed.
func (d Digest) Check(w *digest.Writer) error {
	if got := w.Digest(); got != d.Hash || w.Size() != d.Size {
		return errs.New(errs.DataLoss, "the blob %s came as %s/%d", d, got, w.Size())
	}
	return nil
}
