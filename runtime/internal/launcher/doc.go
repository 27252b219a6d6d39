// Package launcher runs gVisor sandboxes by calling runsc's own packages, and
// answers the daemon's requests about them.
//
// It owns gVisor's state directory and the mounts that host roots need, both
// inside the holder's namespaces. Nothing that matters is only in its memory:
// sandboxes are gVisor's state files, channels are kept by the holder, mounts
// are read from the kernel. It may die at any instant; the next one loads what
// is there and destroys what no request can complete. Sandboxes inherit what is
// passed to them and nothing else that is open here (inherit.go).
//
// Each container has a mutex that is held over gVisor's calls for it, since
// those must not run at the same time; the registry's mutex is never held over
// a call. Lock order: container, then root (images, skeletons), then registry.
package launcher
