package erofs

import (
	"fmt"
	"slices"
	"time"
)

// BlockSize is the block size of every image: gVisor maps file contents, so
// it must be a multiple of the page size, and 4 KiB wastes least.
const BlockSize = 4096

// MaxName is the longest file name in bytes.
const MaxName = 255

// maxTarget is the longest symlink target: readers cut it at a page less one.
const maxTarget = BlockSize - 1

// Type is what a node is. Devices, pipes and sockets are left out on purpose:
// nothing behind them exists inside a sandbox.
type Type int

// The types of nodes.
const (
	Dir Type = iota
	File
	Symlink
)

// Node is one inode of the tree. Adding a node under two names makes a hard
// link; a directory has one name only.
type Node struct {
	Type  Type
	Mode  uint16 // permissions, set-user-ID, set-group-ID and sticky
	UID   uint32
	GID   uint32
	Mtime time.Time

	target   string
	block    uint32
	size     int64
	children map[string]*Node

	sorted []string // names of children, "." and ".." included, set by the layout
	cuts   []int    // how many of them are in each block
	links  uint32
	ino    uint32
	offset int64 // of the inode, from the start of the inodes
	inline bool  // the data follows the inode
	placed bool
}

// NewDir returns an empty directory.
func NewDir(mode uint16) *Node {
	return &Node{Type: Dir, Mode: mode, children: map[string]*Node{}}
}

// NewSymlink returns a symlink.
func NewSymlink(target string) (*Node, error) {
	if target == "" || len(target) > maxTarget {
		return nil, fmt.Errorf("symlink target of %d bytes: 1 to %d are possible", len(target), maxTarget)
	}
	return &Node{Type: Symlink, Mode: 0o777, target: target}, nil
}

// Target returns where a symlink points.
func (n *Node) Target() string { return n.target }

// Size returns the size of a file's content.
func (n *Node) Size() int64 { return n.size }

// Child returns the child called name, or nil.
func (n *Node) Child(name string) *Node { return n.children[name] }

// Names returns the names of the children, sorted.
func (n *Node) Names() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Add puts child under name, replacing what was there.
func (n *Node) Add(name string, child *Node) error {
	if n.Type != Dir {
		return fmt.Errorf("add %q: its parent is no directory", name)
	}
	if err := checkName(name); err != nil {
		return err
	}
	n.children[name] = child
	return nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%q is no file name", name)
	}
	if len(name) > MaxName {
		return fmt.Errorf("file name %.40q… of %d bytes: at most %d are possible", name, len(name), MaxName)
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return fmt.Errorf("file name %q holds a slash or a zero byte", name)
		}
	}
	return nil
}
