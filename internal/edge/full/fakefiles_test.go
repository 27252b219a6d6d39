package full_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// fakePut is a tar stream on its way in.
type fakePut struct {
	dir  string
	data bytes.Buffer
}

type fakeFiles struct{ f *fake }

// inside is where a path of a sandbox lies on this machine.
func (s *fakeFiles) inside(sandbox, p string) (string, error) {
	b, err := s.f.box(sandbox)
	if err != nil {
		return "", err
	}
	return filepath.Join(b.dir, path.Clean("/"+p)), nil
}

func (s *fakeFiles) StatFile(_ context.Context, req *connect.Request[broodv1.StatFileRequest]) (*connect.Response[broodv1.StatFileResponse], error) {
	p, err := s.inside(req.Msg.GetSandbox(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(p)
	if err != nil {
		return nil, errs.New(errs.NotFound, "there is no %s in %s", req.Msg.GetPath(), req.Msg.GetSandbox())
	}
	i := &broodv1.FileInfo{Path: req.Msg.GetPath(), Type: broodv1.FileType_FILE_TYPE_REGULAR, Size: uint64(st.Size())}
	if st.IsDir() {
		i.Type = broodv1.FileType_FILE_TYPE_DIRECTORY
	}
	return connect.NewResponse(&broodv1.StatFileResponse{Info: i}), nil
}

func (s *fakeFiles) BeginPut(_ context.Context, req *connect.Request[broodv1.BeginPutRequest]) (*connect.Response[broodv1.BeginPutResponse], error) {
	dir, err := s.inside(req.Msg.GetSandbox(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, errs.New(errs.NotFound, "there is no folder %s in %s", req.Msg.GetPath(), req.Msg.GetSandbox())
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	id := s.f.id("put-")
	s.f.puts[id] = &fakePut{dir: dir}
	return connect.NewResponse(&broodv1.BeginPutResponse{PutId: id}), nil
}

func (s *fakeFiles) put(id string) (*fakePut, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	p, ok := s.f.puts[id]
	if !ok {
		return nil, errs.New(errs.NotFound, "no put %s", id)
	}
	return p, nil
}

func (s *fakeFiles) WritePut(_ context.Context, req *connect.Request[broodv1.WritePutRequest]) (*connect.Response[broodv1.WritePutResponse], error) {
	p, err := s.put(req.Msg.GetPutId())
	if err != nil {
		return nil, err
	}
	p.data.Write(req.Msg.GetData())
	return connect.NewResponse(&broodv1.WritePutResponse{NextOffset: uint64(p.data.Len())}), nil
}

func (s *fakeFiles) EndPut(_ context.Context, req *connect.Request[broodv1.EndPutRequest]) (*connect.Response[broodv1.EndPutResponse], error) {
	p, err := s.put(req.Msg.GetPutId())
	if err != nil {
		return nil, err
	}
	r := &broodv1.EndPutResponse{}
	for tr := content.NewTar(&p.data); !req.Msg.GetAbort(); r.Entries++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		to := filepath.Join(p.dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var b []byte
			if b, err = io.ReadAll(tr); err == nil {
				err = os.WriteFile(to, b, fs.FileMode(h.Mode))
			}
			r.Bytes += uint64(len(b))
		}
		if err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(r), nil
}

func (s *fakeFiles) GetFiles(_ context.Context, req *connect.Request[broodv1.GetFilesRequest], stream *connect.ServerStream[broodv1.GetFilesResponse]) error {
	from, err := s.inside(req.Msg.GetSandbox(), req.Msg.GetPath())
	if err != nil {
		return err
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return errs.New(errs.NotFound, "there is no %s in %s", req.Msg.GetPath(), req.Msg.GetSandbox())
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(st, "")
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(filepath.Dir(from), p)
		if h.Name = rel; d.IsDir() {
			h.Name += "/"
		}
		if err := tw.WriteHeader(h); err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		_, err = tw.Write(content)
		return err
	})
	if err := errors.Join(err, tw.Close()); err != nil {
		return err
	}
	return stream.Send(&broodv1.GetFilesResponse{Data: b.Bytes()})
}

func (s *fakeImages) RemoveImage(_ context.Context, req *connect.Request[broodv1.RemoveImageRequest]) (*connect.Response[broodv1.RemoveImageResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for n, i := range s.f.images {
		if ref := req.Msg.GetImage(); i.GetName() == ref || strings.HasPrefix(i.GetDigest(), ref) {
			if i.GetUsedBy() > 0 {
				return nil, errs.New(errs.FailedPrecondition, "image %s is in use by sandbox src: remove that first", ref)
			}
			s.f.images = slices.Delete(s.f.images, n, n+1)
			return connect.NewResponse(&broodv1.RemoveImageResponse{Image: i, FreedBytes: i.GetSizeBytes()}), nil
		}
	}
	return nil, errs.New(errs.NotFound, "no image is called %q here", req.Msg.GetImage())
}

func (s *fakeImages) PruneImages(_ context.Context, req *connect.Request[broodv1.PruneImagesRequest]) (*connect.Response[broodv1.PruneImagesResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	r := &broodv1.PruneImagesResponse{Removed: s.f.images}
	for _, i := range s.f.images {
		r.FreedBytes += i.GetSizeBytes()
	}
	if !req.Msg.GetDryRun() {
		s.f.images = nil
	}
	return connect.NewResponse(r), nil
}
