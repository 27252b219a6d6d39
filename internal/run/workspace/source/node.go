package source

import (
	"errors"
	"fmt"
	"io/fs"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// Kind is the type of a node.
type Kind int

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Map
)

// String names the kind as a message does.
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a string", "a list", "a mapping"}[k]
}

// Node is a value of a file.
type Node struct {
	Kind   Kind
	Line   int // of its first character, from 1
	Text   string
	Bool   bool
	Number float64
	Items  []*Node
	Fields []Field
}

// Field is a key of a mapping with its value.
type Field struct {
	Key   string
	Line  int
	Value *Node
}

// Get returns the value of a key, nil where the node has none.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for _, f := range n.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return nil
}

// File is a file as a tree. Path is as it is shown to people.
type File struct {
	Path string
	Root *Node
}

// MaxSize is the largest file that is read.
const MaxSize = 4 << 20

// maxDepth is how deep lists and mappings may be nested.
const maxDepth = 200

// Read returns the bytes of the file at path; shown is its name in messages.
// A file that does not exist is an error of os; callers ask errors.Is. What is
// no file, such as a pipe, a folder or a link that leads nowhere, is an
// InvalidArgument.
func Read(path, shown string) ([]byte, error) {
	raw, err := content.ReadFile(path, shown, MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		if dangling := content.Dangling(path, shown); dangling != nil {
			return nil, dangling
		}
	}
	return raw, err
}

// Wrong returns an error at a line of the file.
func (f *File) Wrong(line int, format string, args ...any) error {
	return errs.New(errs.InvalidArgument, "%s:%d: %s", f.Path, line, fmt.Sprintf(format, args...))
}

// At names a line of the file, as messages do.
func (f *File) At(line int) string { return fmt.Sprintf("%s:%d", f.Path, line) }
