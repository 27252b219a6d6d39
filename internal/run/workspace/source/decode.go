package source

import (
	"fmt"
	"slices"
	"strings"
)

// Keys says what to do with each key of a mapping.
type Keys map[string]func(v *Node) error

// Each calls the function of every key of n that is not null. unknown is
// called for a key that keys lacks, with the nearest right name or "". what
// names the mapping in messages, such as tasks.build.
func (f *File) Each(n *Node, what string, keys Keys, unknown func(at Field, nearest string) error) error {
	if err := f.Want(n, what, Map); err != nil {
		return err
	}
	for _, field := range n.Fields {
		on, known := keys[field.Key]
		var err error
		switch {
		case !known:
			err = unknown(field, Nearest(field.Key, names(keys)))
		case field.Value.Kind != Null:
			err = on(field.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func names(keys Keys) []string {
	all := make([]string, 0, len(keys))
	for k := range keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// Refuse is what to do with an unknown key where it is an error.
func (f *File) Refuse(what string) func(Field, string) error {
	return func(at Field, nearest string) error {
		return f.Wrong(at.Line, "%s", Unknown(at.Key, what, nearest))
	}
}

// Unknown words the message about an unknown key of what.
func Unknown(key, what, nearest string) string {
	place := "at the top"
	if what != "" {
		place = "in " + what
	}
	if nearest == "" {
		return fmt.Sprintf("unknown key %q %s", clip(key), place)
	}
	return fmt.Sprintf("unknown key %q %s: did you mean %q?", clip(key), place, nearest)
}

// Want checks the kind of a value.
func (f *File) Want(n *Node, what string, kind Kind) error {
	if n.Kind == kind {
		return nil
	}
	if what == "" {
		what = "the file"
	}
	return f.Wrong(n.Line, "%s takes %s, this is %s", what, kind, n.Kind)
}

// String reads a string into to.
func (f *File) String(what string, to *string) func(*Node) error {
	return func(n *Node) error {
		*to = n.Text
		return f.Want(n, what, String)
	}
}

// Bool reads true or false into to.
func (f *File) Bool(what string, to **bool) func(*Node) error {
	return func(n *Node) error {
		*to = &n.Bool
		return f.Want(n, what, Bool)
	}
}

// OneOf reads one of the words into to.
func (f *File) OneOf(what string, to *string, words ...string) func(*Node) error {
	return func(n *Node) error {
		if err := f.Want(n, what, String); err != nil {
			return err
		}
		if !slices.Contains(words, n.Text) {
			return f.Wrong(n.Line, "%s is %q: it takes %s", what, clip(n.Text), strings.Join(words, ", "))
		}
		*to = n.Text
		return nil
	}
}

// Strings reads a list of strings into to, which is then never nil.
func (f *File) Strings(what string, to *[]string) func(*Node) error {
	return func(n *Node) error {
		if err := f.Want(n, what, List); err != nil {
			return err
		}
		all := make([]string, 0, len(n.Items))
		for _, item := range n.Items {
			if item.Kind != String {
				return f.Wrong(item.Line, "%s takes strings, this is %s", what, item.Kind)
			}
			all = append(all, item.Text)
		}
		*to = all
		return nil
	}
}

// Skip takes a key that means nothing to us.
func Skip(*Node) error { return nil }
