// Package imagecheck looks whether a checkpoint that gVisor wrote is whole,
// without linking gVisor.
//
// gVisor may end with success and a cut file when the disk is full. Its files
// do not say how long they are, but their content does: checkpoint.img and
// pages_meta.img are sequences of self-describing objects that must end where
// the file ends, and pages_meta.img lists every range of memory whose pages
// are in pages.img, one after another. Check walks the objects without
// building them and compares; it reads pages.img's size only, not its bytes.
//
// The format is the one of the gVisor version that runtime/go.mod pins. What
// is not known is not refused. Functions are safe for concurrent use.
package imagecheck
