package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox/image"
)

// imageUsers is who stands on which image.
type imageUsers struct {
	of map[digest.Digest][]string
	// unknown are those of which that cannot be known, such as a newer brood's:
	// they may need any image.
	unknown []string
}

func (d *Daemon) imageUsers() imageUsers {
	u := imageUsers{of: map[digest.Digest][]string{}}
	for _, sb := range d.host.List() {
		if !sb.Known() {
			u.unknown = append(u.unknown, fmt.Sprintf("sandbox %s (whose record cannot be read: it may need this image)", sb.Name))
			continue
		}
		u.of[sb.Root.Digest] = append(u.of[sb.Root.Digest], "sandbox "+string(sb.Name))
	}
	for _, cp := range d.cps.List() {
		b := cp.Manifest.Base.Digest
		u.of[b] = append(u.of[b], "checkpoint "+string(cp.Name))
	}
	for _, sb := range d.host.Foreign() {
		u.unknown = append(u.unknown, fmt.Sprintf("sandbox %s (of a newer brood, it may need this image)", sb))
	}
	for _, cp := range d.cps.Damaged() {
		if !cp.Lost() {
			u.unknown = append(u.unknown, fmt.Sprintf("checkpoint %s (which cannot be read: it may need this image)", cp.Name))
		}
	}
	return u
}

// who names the users of one image; "" when there are none.
func (d *Daemon) who(image digest.Digest) string {
	u := d.imageUsers()
	names := append(u.of[image], u.unknown...)
	const most = 8
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// RemoveImage removes one that nothing needs.
func (s *imageService) RemoveImage(_ context.Context, req *connect.Request[broodv1.RemoveImageRequest]) (*connect.Response[broodv1.RemoveImageResponse], error) {
	i, err := s.d.images.Lookup(req.Msg.GetImage())
	if err != nil {
		return nil, err
	}
	if err := s.d.images.Remove(i.Root.Digest, s.d.who); err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.RemoveImageResponse{Image: imageMessage(i, 0), FreedBytes: uint64(i.Size)}), nil
}

// PruneImages removes all that nothing needs.
func (s *imageService) PruneImages(_ context.Context, req *connect.Request[broodv1.PruneImagesRequest]) (*connect.Response[broodv1.PruneImagesResponse], error) {
	all, err := s.d.images.List()
	if err != nil {
		return nil, err
	}
	gone, err := s.d.dropImages(all, req.Msg.GetDryRun())
	if err != nil {
		return nil, err
	}
	resp := &broodv1.PruneImagesResponse{}
	for _, i := range gone {
		resp.Removed = append(resp.Removed, imageMessage(i, 0))
		resp.FreedBytes += uint64(i.Size)
	}
	return connect.NewResponse(resp), nil
}

// dropImages removes those of the images that nothing needs, and returns them.
// With dry they stay.
func (d *Daemon) dropImages(all []image.Image, dry bool) (gone []image.Image, failed error) {
	for _, i := range all {
		who := d.who(i.Root.Digest)
		var err error
		if who == "" && !dry {
			err = d.images.Remove(i.Root.Digest, d.who)
		}
		switch {
		case errs.Is(err, errs.FailedPrecondition), errs.Is(err, errs.NotFound):
			// Somebody began to use it, or removed it, just now.
		case err != nil:
			failed = errors.Join(failed, err)
		case who == "":
			gone = append(gone, i)
		}
	}
	return gone, failed
}

// dropOldHosts removes what earlier states of this machine's root left: each
// change of a listed file of /etc and each upgrade of brood makes another host
// image. Failing at that stops nobody.
func (d *Daemon) dropOldHosts() {
	old, err := d.images.OldHosts()
	var gone []image.Image
	if err == nil {
		gone, err = d.dropImages(old, false)
	}
	for _, i := range gone {
		d.log.Info("removed an image of this machine's root as it was", "image", i.Root.Digest.Short(), "bytes", i.Size)
	}
	if err != nil {
		d.log.Warn("images of this machine's root as it was are left", "error", err)
	}
}
