package key

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/run"
)

// Item is one named part of a key.
type Item struct {
	// Name is a path, a variable, a task or a field; it need not be UTF-8.
	Name string
	// Value is short: an id, a hash, or the field's value.
	Value string
}

// Group is a list of parts of one kind, sorted by name. Groups are shared
// between tasks and must not be changed.
type Group struct {
	Name  string
	Sum   digest.Digest
	Items []Item
}

// The groups of a key, in their order.
const (
	TaskGroup     = "task"
	EnvGroup      = "environment"
	GlobalGroup   = "workspace"
	LockGroup     = "lockfile"
	UpstreamGroup = "dependencies"
	FilesGroup    = "files"
)

// Parts is what a key was made of.
type Parts struct {
	Key    run.Key
	Groups []*Group
}

// newGroup makes a group of sorted items.
func newGroup(name string, items []Item) *Group {
	g := &Group{Name: name, Items: items}
	g.Sum = digest.Of(g.Encode())
	return g
}

// Encode writes the group's items; their SHA-256 is Sum.
func (g *Group) Encode() []byte {
	size := len(g.Name) + 16
	for _, it := range g.Items {
		size += len(it.Name) + len(it.Value) + 6
	}
	b := make([]byte, 0, size)
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	str(g.Name)
	for _, it := range g.Items {
		str(it.Name)
		str(it.Value)
	}
	return b
}

// DecodeGroup reads what Encode wrote.
func DecodeGroup(b []byte) (*Group, error) {
	bad := errs.New(errs.DataLoss, "no group of a key's parts")
	g := &Group{Sum: digest.Of(b)}
	str := func() (string, bool) {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return "", false
		}
		s := string(b[used : used+int(n)])
		b = b[used+int(n):]
		return s, true
	}
	var ok bool
	if g.Name, ok = str(); !ok {
		return nil, bad
	}
	for len(b) > 0 {
		var it Item
		if it.Name, ok = str(); !ok {
			return nil, bad
		}
		if it.Value, ok = str(); !ok {
			return nil, bad
		}
		g.Items = append(g.Items, it)
	}
	return g, nil
}

// version changes whenever equal inputs get other keys.
const version = "brood key 1\n"

// seal computes the key of the groups.
func seal(groups []*Group) run.Key {
	h := sha256.New()
	h.Write([]byte(version))
	for _, g := range groups {
		h.Write([]byte(g.Sum))
	}
	return run.Key(hex.EncodeToString(h.Sum(nil)))
}

// Change is one part that differs between two keys of a task.
type Change struct {
	Group string
	Name  string
	// Old and New are the values; Added and Removed say that there was, or is, none.
	Old, New       string
	Added, Removed bool
}

// Diff lists what makes two keys differ, in the order of the groups and names.
func Diff(before, after *Parts) []Change {
	old := map[string]*Group{}
	for _, g := range before.Groups {
		old[g.Name] = g
	}
	var all []Change
	for _, g := range after.Groups {
		was := old[g.Name]
		delete(old, g.Name)
		if was == nil {
			was = &Group{}
		}
		if was.Sum != g.Sum {
			all = append(all, diffItems(g.Name, was.Items, g.Items)...)
		}
	}
	for _, g := range before.Groups {
		if old[g.Name] != nil {
			all = append(all, diffItems(g.Name, g.Items, nil)...)
		}
	}
	return all
}

func diffItems(group string, before, after []Item) []Change {
	var all []Change
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Name < after[0].Name:
			all = append(all, Change{Group: group, Name: before[0].Name, Old: before[0].Value, Removed: true})
			before = before[1:]
		case len(before) == 0 || after[0].Name < before[0].Name:
			all = append(all, Change{Group: group, Name: after[0].Name, New: after[0].Value, Added: true})
			after = after[1:]
		default:
			if before[0].Value != after[0].Value {
				all = append(all, Change{Group: group, Name: after[0].Name, Old: before[0].Value, New: after[0].Value})
			}
			before, after = before[1:], after[1:]
		}
	}
	return all
}
