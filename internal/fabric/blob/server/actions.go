package server

import (
	"context"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
)

const (
	// maxResult is the largest result that is stored, in bytes.
	maxResult = maxMessage
	// maxTree is the largest description of an output folder that is read.
	maxTree = 64 << 20
)

// The size of an action's digest is not looked at: some clients know only the
// hash, and send -1.

// GetActionResult returns a result, if everything that it names is here.
func (s *service) GetActionResult(_ context.Context, r *rexec.GetActionResultRequest) (*rexec.ActionResult, error) {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return nil, wire(err)
	}
	action, err := digest.Parse(r.GetActionDigest().GetHash())
	if err != nil {
		return nil, wire(err)
	}
	b, err := s.store.Result(r.GetInstanceName(), action)
	if err != nil {
		return nil, wire(err)
	}
	result := &rexec.ActionResult{}
	if err := proto.Unmarshal(b, result); err != nil {
		// A power cut spoiled it; the next run stores it again.
		s.store.DropResult(r.GetInstanceName(), action)
		return nil, wire(errs.New(errs.NotFound, "the result of %s was damaged and is removed", action))
	}
	if err := s.whole(result); err != nil {
		return nil, wire(errs.New(errs.NotFound, "the result of %s is not whole any more: %w", action, err))
	}
	return result, nil
}

// UpdateActionResult stores a result.
func (s *service) UpdateActionResult(_ context.Context, r *rexec.UpdateActionResultRequest) (*rexec.ActionResult, error) {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return nil, wire(err)
	}
	if err := s.writable(); err != nil {
		return nil, wire(err)
	}
	action, err := digest.Parse(r.GetActionDigest().GetHash())
	if err != nil {
		return nil, wire(err)
	}
	if r.GetActionResult() == nil {
		return nil, wire(errs.New(errs.InvalidArgument, "the request has no result"))
	}
	if _, err := named(r.GetActionResult()); err != nil {
		return nil, wire(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.GetActionResult())
	if err != nil {
		return nil, wire(errs.New(errs.InvalidArgument, "the result: %w", err))
	}
	if len(b) > maxResult {
		return nil, wire(errs.New(errs.InvalidArgument, "the result has %d bytes: at most %d are taken", len(b), maxResult))
	}
	if err := s.store.PutResult(r.GetInstanceName(), action, b); err != nil {
		return nil, wire(err)
	}
	return r.GetActionResult(), nil
}

// named lists the blobs that a result names itself, without what is inline.
func named(r *rexec.ActionResult) ([]blob.Digest, error) {
	var protos []*rexec.Digest
	for _, f := range r.GetOutputFiles() {
		if f.GetDigest() == nil {
			return nil, errs.New(errs.InvalidArgument, "the output file %q has no digest", f.GetPath())
		}
		if len(f.GetContents()) == 0 {
			protos = append(protos, f.GetDigest())
		}
	}
	for _, d := range r.GetOutputDirectories() {
		for _, p := range []*rexec.Digest{d.GetTreeDigest(), d.GetRootDirectoryDigest()} {
			if p != nil {
				protos = append(protos, p)
			}
		}
	}
	if p := r.GetStdoutDigest(); p != nil && len(r.GetStdoutRaw()) == 0 {
		protos = append(protos, p)
	}
	if p := r.GetStderrDigest(); p != nil && len(r.GetStderrRaw()) == 0 {
		protos = append(protos, p)
	}
	list := make([]blob.Digest, 0, len(protos))
	for _, p := range protos {
		d, err := blob.FromProto(p)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// whole says which blob of a result is missing, if any. It counts as a use of
// all of them.
func (s *service) whole(r *rexec.ActionResult) error {
	list, err := named(r)
	if err != nil {
		return err
	}
	for _, d := range list {
		if !s.store.Has(d) {
			return errs.New(errs.NotFound, "blob %s is gone", d)
		}
	}
	for _, out := range r.GetOutputDirectories() {
		if err := s.wholeTree(out); err != nil {
			return err
		}
	}
	return nil
}

// wholeTree looks at the files of an output folder.
func (s *service) wholeTree(out *rexec.OutputDirectory) error {
	if out.GetTreeDigest() == nil {
		return s.wholeDirectory(out.GetRootDirectoryDigest())
	}
	tree := &rexec.Tree{}
	if err := s.message(out.GetTreeDigest(), tree); err != nil {
		return err
	}
	for _, dir := range append(tree.GetChildren(), tree.GetRoot()) {
		if err := s.wholeFiles(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) wholeFiles(dir *rexec.Directory) error {
	for _, f := range dir.GetFiles() {
		d, err := blob.FromProto(f.GetDigest())
		if err != nil {
			return err
		}
		if !s.store.Has(d) {
			return errs.New(errs.NotFound, "blob %s of the file %q is gone", d, f.GetName())
		}
	}
	return nil
}

// wholeDirectory looks at the files of a folder that is stored in parts.
func (s *service) wholeDirectory(root *rexec.Digest) error {
	if root == nil {
		return nil
	}
	return s.walk(root, func(dir *rexec.Directory, missing error) error {
		if missing != nil {
			return missing
		}
		return s.wholeFiles(dir)
	})
}

// message reads a blob that is a message.
func (s *service) message(p *rexec.Digest, m proto.Message) error {
	d, err := blob.FromProto(p)
	if err != nil {
		return err
	}
	if d.Size > maxTree {
		return errs.New(errs.InvalidArgument, "blob %s is too large for a folder: at most %d bytes are read", d, maxTree)
	}
	b, err := s.read(p)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return errs.New(errs.InvalidArgument, "blob %s is no folder: %w", d, err)
	}
	return nil
}
