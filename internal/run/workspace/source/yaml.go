package source

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"brood/internal/base/errs"
)

// YAML reads one YAML document. path is the file's name in messages. An empty
// file is an empty mapping.
func YAML(path string, raw []byte) (f *File, err error) {
	raw = plain(raw)
	f = &File{Path: path}
	if !utf8.Valid(raw) {
		return nil, errs.New(errs.InvalidArgument, "%s is not UTF-8: save it as UTF-8", path)
	}
	if line := tooDeepYAML(raw); line > 0 {
		return nil, f.Wrong(line, "lists and mappings are nested more than %d deep", maxDepth)
	}
	// The parser answers some broken documents with a panic. It keeps no state
	// beyond the call, so that is as good as an error.
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, errs.New(errs.InvalidArgument, "%s is not YAML: the parser gave up on it", path)
		}
	}()
	tree, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return nil, yamlError(f, err)
	}
	r := yamlReader{file: f, anchors: map[string]*Node{}}
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if f.Root != nil {
			return nil, f.Wrong(doc.GetToken().Position.Line, "holds more than one document: only one is read")
		}
		if f.Root, err = r.node(doc.Body, 0); err != nil {
			return nil, err
		}
	}
	if f.Root == nil || f.Root.Kind == Null {
		f.Root = &Node{Kind: Map, Line: 1}
	}
	return f, nil
}

// tooDeepYAML bounds what can make the parser recurse: brackets, and dashes and
// spaces at the beginning of a line.
func tooDeepYAML(raw []byte) int {
	depth, indent, begin := 0, 0, true
	for at, b := range raw {
		switch b {
		case '\n':
			indent, begin = 0, true
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		if begin = begin && (b == ' ' || b == '-' || b == '?' || b == ':'); begin {
			indent++
		}
		if depth > maxDepth || indent > 4*maxDepth {
			return LineOf(raw, at)
		}
	}
	return 0
}

func yamlError(f *File, err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return f.Wrong(at.GetToken().Position.Line, "is not YAML: %s", at.GetMessage())
	}
	return errs.New(errs.InvalidArgument, "%s is not YAML: %w", f.Path, err)
}

type yamlReader struct {
	file    *File
	anchors map[string]*Node
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func (r *yamlReader) node(in ast.Node, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, r.file.Wrong(line(in), "lists and mappings are nested more than %d deep", maxDepth)
	}
	n := &Node{Line: line(in)}
	switch v := in.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.Kind, n.Bool, n.Text = Bool, v.Value, v.Token.Value
	case *ast.StringNode:
		n.Kind, n.Text = String, v.Value
	case *ast.LiteralNode:
		n.Kind, n.Text = String, v.Value.Value
	case *ast.IntegerNode:
		n.Kind, n.Text, n.Number = Number, v.Token.Value, number(v.Value)
	case *ast.FloatNode:
		n.Kind, n.Text, n.Number = Number, v.Token.Value, v.Value
	case *ast.SequenceNode:
		return r.list(n, v, depth)
	case *ast.MappingNode:
		return n, r.fields(n, v.Values, depth)
	case *ast.MappingValueNode:
		return n, r.fields(n, []*ast.MappingValueNode{v}, depth)
	case *ast.TagNode:
		return r.node(v.Value, depth+1)
	case *ast.AnchorNode:
		inner, err := r.node(v.Value, depth+1)
		if err == nil {
			r.anchors[v.Name.GetToken().Value] = inner
		}
		return inner, err
	case *ast.AliasNode:
		return r.alias(v)
	default:
		return nil, r.file.Wrong(n.Line, "%q is no plain value", clip(in.String()))
	}
	return n, nil
}

func (r *yamlReader) alias(v *ast.AliasNode) (*Node, error) {
	name := v.Value.GetToken().Value
	if n := r.anchors[name]; n != nil {
		return n, nil
	}
	return nil, r.file.Wrong(line(v), "*%s names no anchor before it", name)
}

func (r *yamlReader) list(n *Node, v *ast.SequenceNode, depth int) (*Node, error) {
	n.Kind = List
	for _, item := range v.Values {
		inner, err := r.node(item, depth+1)
		if err != nil {
			return nil, err
		}
		n.Items = append(n.Items, inner)
	}
	return n, nil
}

// fields reads a mapping; "<<" puts another mapping's fields behind its own.
func (r *yamlReader) fields(n *Node, values []*ast.MappingValueNode, depth int) error {
	n.Kind = Map
	seen := make(map[string]bool, len(values))
	var merged []*Node
	for _, v := range values {
		inner, err := r.node(v.Value, depth+1)
		if err != nil {
			return err
		}
		if v.Key.Type() == ast.MergeKeyType {
			merged = append(merged, inner)
			continue
		}
		key := Field{Key: keyText(v.Key), Line: line(v.Key), Value: inner}
		if seen[key.Key] {
			return r.file.Wrong(key.Line, "%q is there twice", key.Key)
		}
		seen[key.Key] = true
		n.Fields = append(n.Fields, key)
	}
	return r.merge(n, seen, merged)
}

func (r *yamlReader) merge(n *Node, seen map[string]bool, merged []*Node) error {
	for _, from := range merged {
		sources := []*Node{from}
		if from.Kind == List {
			sources = from.Items
		}
		for _, s := range sources {
			if s.Kind != Map {
				return r.file.Wrong(s.Line, "<< takes a mapping, this is %s", s.Kind)
			}
			for _, f := range s.Fields {
				if !seen[f.Key] {
					seen[f.Key] = true
					n.Fields = append(n.Fields, f)
				}
			}
		}
	}
	return nil
}

func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	if t := k.GetToken(); t != nil {
		return t.Value
	}
	return strings.TrimSpace(k.String())
}

func number(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return 0
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
