package erofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

const (
	slot       = 32 // inodes are addressed in units of this
	inodeSize  = 64 // the extended inode: it has 32-bit owners and a time
	direntSize = 12
	// maxInline is what fits behind an inode without crossing a block.
	maxInline = BlockSize - inodeSize
	// firstInode leaves number 0 unused: directory readers skip entries with it.
	firstInode = inodeSize
)

// Values of the format.
const (
	layoutPlain  = 0
	layoutInline = 2

	typeDir     = 0o040000
	typeFile    = 0o100000
	typeSymlink = 0o120000
)

// layout decides where every inode lies.
type layout struct {
	nodes   []*Node // in the order of their inodes
	parents []*Node // of directories, by position in nodes; nil for others
	size    int64   // of all inodes and what follows them
}

func (l *layout) place(root *Node) error {
	l.size = firstInode
	if err := l.walk(root, root); err != nil {
		return err
	}
	if root.offset/slot > math.MaxUint16 {
		return errors.New("the root inode lies too far in")
	}
	return nil
}

func (l *layout) walk(n, parent *Node) error {
	n.links++
	if n.placed {
		if n.Type == Dir {
			return errors.New("a directory has two names")
		}
		return nil
	}
	n.placed = true
	if len(l.nodes) == math.MaxUint32 {
		return errors.New("too many files")
	}
	if n.Type == Dir {
		if err := n.prepareDir(); err != nil {
			return err
		}
	}
	if n.Type == Symlink {
		n.size = int64(len(n.target))
	}
	n.inline = n.Type != File && n.size > 0 && n.size <= maxInline
	need := int64(inodeSize)
	if n.inline {
		need += n.size
	}
	if l.size%BlockSize+need > BlockSize {
		l.size = blocks(l.size) * BlockSize
	}
	n.offset = l.size
	l.size += (need + slot - 1) / slot * slot
	n.ino = uint32(len(l.nodes) + 1)
	l.nodes = append(l.nodes, n)
	if n.Type != Dir {
		l.parents = append(l.parents, nil)
		return nil
	}
	l.parents = append(l.parents, parent)
	for _, name := range n.sorted {
		if name == "." || name == ".." {
			continue
		}
		if err := l.walk(n.children[name], n); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// prepareDir sorts the names, counts the links and cuts the entries into
// blocks: none of them depends on where inodes lie.
func (n *Node) prepareDir() error {
	n.sorted = append(n.Names(), ".", "..")
	slices.Sort(n.sorted) // readers search by bytes, and '-' sorts before '.'
	n.links++             // its own "."
	for _, c := range n.children {
		if c.Type == Dir {
			n.links++
		}
	}
	var last int
	n.cuts, last = cutNames(n.sorted)
	if n.cuts == nil {
		return fmt.Errorf("%d files with names so long that gVisor could not list them: shorten the names or split the folder", len(n.children))
	}
	n.size = int64(len(n.cuts)-1)*BlockSize + int64(last)
	return nil
}

// cutNames cuts sorted names into blocks and returns how many go into each,
// and the bytes that the last block takes; nil when it cannot be done.
//
// gVisor takes all that follows the last name of a full block, padding
// included, for that name, and refuses more than 255 bytes. So a block that
// is not the last must be filled up to that, which not every choice does.
func cutNames(names []string) (cuts []int, last int) {
	// next[i] is how many names the block that begins with name i takes, 0
	// when there is no way to go on from there.
	next := make([]int, len(names)+1)
	for i := len(names) - 1; i >= 0; i-- {
		used := 0
		for k := i; k < len(names); k++ {
			used += direntSize + len(names[k])
			if used > BlockSize {
				break
			}
			whole := k == len(names)-1
			if whole || BlockSize-used+len(names[k]) <= MaxName && next[k+1] > 0 {
				next[i] = k - i + 1
			}
		}
	}
	for i := 0; i < len(names); i += next[i] {
		if next[i] == 0 {
			return nil, 0
		}
		cuts = append(cuts, next[i])
	}
	for _, name := range names[len(names)-cuts[len(cuts)-1]:] {
		last += direntSize + len(name)
	}
	return cuts, last
}

// entries returns a directory's data.
func (l *layout) entries(n *Node) []byte {
	data := make([]byte, n.size)
	names := n.sorted
	for b, count := range n.cuts {
		block := data[b*BlockSize:]
		at := count * direntSize
		for i, name := range names[:count] {
			target := n.children[name]
			switch name {
			case ".":
				target = n
			case "..":
				target = l.parents[n.ino-1]
			}
			entry := block[i*direntSize:]
			binary.LittleEndian.PutUint64(entry, uint64(target.offset/slot))
			binary.LittleEndian.PutUint16(entry[8:], uint16(at))
			entry[10] = target.direntType()
			at += copy(block[at:], name)
		}
		names = names[count:]
	}
	return data
}

func (n *Node) direntType() byte {
	switch n.Type {
	case Dir:
		return 2
	case Symlink:
		return 7
	default:
		return 1
	}
}

func (n *Node) mode() uint16 {
	switch n.Type {
	case Dir:
		return typeDir | n.Mode&0o7777
	case Symlink:
		return typeSymlink | n.Mode&0o7777
	default:
		return typeFile | n.Mode&0o7777
	}
}

// write writes all inodes, padded to whole blocks.
func (l *layout) write(out io.Writer) error {
	var at int64
	pad := func(to int64) error {
		_, err := out.Write(make([]byte, to-at))
		at = to
		return err
	}
	for _, n := range l.nodes {
		if err := pad(n.offset); err != nil {
			return err
		}
		b := n.inode()
		if n.inline && n.Type == Dir {
			b = append(b, l.entries(n)...)
		} else if n.inline {
			b = append(b, n.target...)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return pad(blocks(l.size) * BlockSize)
}

// inode returns the extended inode.
func (n *Node) inode() []byte {
	b := make([]byte, inodeSize)
	le := binary.LittleEndian
	format := uint16(1) // extended
	if n.inline {
		format |= layoutInline << 1
	} else {
		format |= layoutPlain << 1
	}
	le.PutUint16(b[0:], format)
	le.PutUint16(b[4:], n.mode())
	le.PutUint64(b[8:], uint64(n.size))
	le.PutUint32(b[16:], n.block)
	le.PutUint32(b[20:], n.ino)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	if !n.Mtime.IsZero() {
		le.PutUint64(b[32:], uint64(n.Mtime.Unix()))
		le.PutUint32(b[40:], uint32(n.Mtime.Nanosecond()))
	}
	le.PutUint32(b[44:], n.links)
	return b
}
