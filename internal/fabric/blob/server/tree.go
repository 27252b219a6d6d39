package server

import (
	"strconv"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
)

const (
	// pageFolders and pageBytes bound one message of GetTree.
	pageFolders = 1000
	pageBytes   = 2 << 20
	// maxFolders bounds what one call walks through.
	maxFolders = 1_000_000
)

// walk goes through the folders below root, breadth first and each once. What
// is missing or no folder comes with an error.
func (s *service) walk(root *rexec.Digest, visit func(*rexec.Directory, error) error) error {
	queue := []*rexec.Digest{root}
	seen := map[string]bool{root.GetHash(): true}
	for n := 0; len(queue) > 0; n++ {
		if n == maxFolders {
			return errs.New(errs.InvalidArgument, "the tree has more than %d folders", maxFolders)
		}
		dir := &rexec.Directory{}
		err := s.message(queue[0], dir)
		queue = queue[1:]
		if err := visit(dir, err); err != nil {
			return err
		}
		for _, child := range dir.GetDirectories() {
			if hash := child.GetDigest().GetHash(); !seen[hash] {
				seen[hash] = true
				queue = append(queue, child.GetDigest())
			}
		}
	}
	return nil
}

// GetTree streams the folders below a root, without those that are missing. A
// page token is how many to skip.
func (s *service) GetTree(r *rexec.GetTreeRequest, stream rexec.ContentAddressableStorage_GetTreeServer) error {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return wire(err)
	}
	root, err := blob.FromProto(r.GetRootDigest())
	if err != nil {
		return wire(err)
	}
	if !s.store.Has(root) {
		return wire(errs.New(errs.NotFound, "the root %s is not in the cache", root))
	}
	skip := 0
	if t := r.GetPageToken(); t != "" {
		if skip, err = strconv.Atoi(t); err != nil || skip < 0 {
			return wire(errs.New(errs.InvalidArgument, "the page token %.40q is none of this cache's", t))
		}
	}
	p := &pager{stream: stream, skip: skip, most: pageFolders}
	if n := int(r.GetPageSize()); n > 0 {
		p.most = min(p.most, n)
	}
	err = s.walk(r.GetRootDigest(), func(dir *rexec.Directory, missing error) error {
		if missing != nil {
			return stream.Context().Err()
		}
		return p.add(dir)
	})
	if err != nil {
		return wire(err)
	}
	return p.last()
}

// pager fills the messages of GetTree.
type pager struct {
	stream rexec.ContentAddressableStorage_GetTreeServer
	skip   int // folders that the client has
	most   int // folders in a message

	sent  int // with those skipped
	page  []*rexec.Directory
	bytes int
}

func (p *pager) add(dir *rexec.Directory) error {
	if p.skip > 0 {
		p.skip--
		p.sent++
		return nil
	}
	size := proto.Size(dir)
	// What is full goes only when there is more: the last message has no token.
	if len(p.page) == p.most || len(p.page) > 0 && p.bytes+size > pageBytes {
		p.sent += len(p.page)
		if err := p.stream.Send(&rexec.GetTreeResponse{Directories: p.page, NextPageToken: strconv.Itoa(p.sent)}); err != nil {
			return err
		}
		p.page, p.bytes = nil, 0
	}
	p.page = append(p.page, dir)
	p.bytes += size
	return nil
}

func (p *pager) last() error {
	return p.stream.Send(&rexec.GetTreeResponse{Directories: p.page})
}
