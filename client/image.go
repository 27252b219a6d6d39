package client

import (
	"context"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
)

// ListImages lists the images, newest first.
func (c *Client) ListImages(ctx context.Context) ([]*broodv1.Image, error) {
	r, err := unary(ctx, c.images.ListImages, &broodv1.ListImagesRequest{})
	return r.GetImages(), err
}

// RemoveImage removes an image, by its name, its digest or the beginning of
// that. While sandboxes or checkpoints need it, it is refused.
func (c *Client) RemoveImage(ctx context.Context, image string) (*broodv1.RemoveImageResponse, error) {
	return unary(ctx, c.images.RemoveImage, &broodv1.RemoveImageRequest{Image: image})
}

// PruneImages removes the images that nothing needs; with dryRun it only says
// which these are.
func (c *Client) PruneImages(ctx context.Context, dryRun bool) (*broodv1.PruneImagesResponse, error) {
	return unary(ctx, c.images.PruneImages, &broodv1.PruneImagesRequest{DryRun: dryRun})
}

// ImportImage makes an image of a folder or a tar file on the daemon's
// machine; path is absolute, name may be empty. progress may be nil. The end
// of ctx cancels the import.
func (c *Client) ImportImage(ctx context.Context, path, name string, progress func(*broodv1.ImportImageProgress)) (*broodv1.Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.images.ImportImage(ctx, connect.NewRequest(&broodv1.ImportImageRequest{Path: path, Name: name}))
	if err != nil {
		return nil, ended(ctx, err)
	}
	for s.Receive() {
		if r := s.Msg().GetResult(); r != nil {
			return r, nil
		}
		if p := s.Msg().GetProgress(); p != nil && progress != nil {
			progress(p)
		}
	}
	return nil, ended(ctx, streamEnd(s.Err()))
}
