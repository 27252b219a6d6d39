package daemon

import (
	"context"
	"path/filepath"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/sandbox/image"
)

type imageService struct{ d *Daemon }

// ListImages lists the images of this machine.
func (s *imageService) ListImages(context.Context, *connect.Request[broodv1.ListImagesRequest]) (*connect.Response[broodv1.ListImagesResponse], error) {
	all, err := s.d.images.List()
	if err != nil {
		return nil, err
	}
	users := s.d.imageUsers()
	resp := &broodv1.ListImagesResponse{}
	for _, i := range all {
		resp.Images = append(resp.Images, imageMessage(i, uint32(len(users.of[i.Root.Digest]))))
	}
	return connect.NewResponse(resp), nil
}

// ImportImage makes an image of a folder or a tar file of this machine.
func (s *imageService) ImportImage(ctx context.Context, req *connect.Request[broodv1.ImportImageRequest], stream *connect.ServerStream[broodv1.ImportImageResponse]) error {
	if !filepath.IsAbs(req.Msg.GetPath()) {
		return errs.New(errs.InvalidArgument, "path %.200q must be absolute: the daemon has another working folder", req.Msg.GetPath())
	}
	if name := req.Msg.GetName(); name != "" {
		if err := image.CheckName(name); err != nil {
			return err
		}
	}
	i, err := s.imported(ctx, req.Msg, stream)
	if err != nil {
		return err
	}
	return stream.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Result{Result: imageMessage(i, 0)}})
}

// imported makes the image. It is no longer kept when the caller is told of it,
// who may want it removed at once.
func (s *imageService) imported(ctx context.Context, req *broodv1.ImportImageRequest, stream *connect.ServerStream[broodv1.ImportImageResponse]) (image.Image, error) {
	var failed error
	i, let, err := s.d.images.Use(ctx, req.GetPath(), image.Options{Progress: func(done, _ int64) {
		if failed == nil {
			failed = stream.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Progress{
				Progress: &broodv1.ImportImageProgress{Bytes: uint64(done)},
			}})
		}
	}})
	if err != nil {
		return image.Image{}, err
	}
	defer let()
	if name := req.GetName(); name != "" {
		if err := s.d.images.SetName(name, i.Root.Digest); err != nil {
			return image.Image{}, err
		}
		i.Name = name
	}
	return i, nil
}

func imageMessage(i image.Image, used uint32) *broodv1.Image {
	kind := string(i.Kind)
	if i.Kind == image.Folder {
		kind = "folder"
	}
	return &broodv1.Image{Digest: string(i.Root.Digest), Name: i.Name, Kind: kind, Origin: i.Ref, SizeBytes: uint64(i.Size), CreatedAt: stamp(i.Created), UsedBy: used}
}
