package source

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"brood/internal/base/errs"
	"brood/internal/base/lazy"
)

// JSON reads JSON with comments and trailing commas. path is the file's name
// in messages.
func JSON(path string, raw []byte) (*File, error) {
	raw = plain(raw)
	f := &File{Path: path}
	if line := tooDeep(raw); line > 0 {
		return nil, f.Wrong(line, "lists and objects are nested more than %d deep", maxDepth)
	}
	if !utf8.Valid(raw) {
		return nil, errs.New(errs.InvalidArgument, "%s is not UTF-8: save it as UTF-8", path)
	}
	value, err := hujson.Parse(raw)
	if err != nil {
		return nil, jsonError(f, err)
	}
	r := jsonReader{file: f, lines: linesOf(raw)}
	f.Root, err = r.node(&value)
	if err != nil {
		return nil, err
	}
	return f, nil
}

var position = lazy.Regexp(`^hujson: line (\d+), column \d+: (.*)$`)

// jsonError turns the parser's words about a place into ours.
func jsonError(f *File, err error) error {
	if m := position().FindStringSubmatch(err.Error()); m != nil {
		if line, nerr := strconv.Atoi(m[1]); nerr == nil {
			return f.Wrong(line, "is not JSON: %s", m[2])
		}
	}
	return errs.New(errs.InvalidArgument, "%s is not JSON: %w", f.Path, err)
}

// tooDeep returns the line on which brackets are nested too deep, 0 for none.
// It counts brackets outside of strings and comments, before a parser recurses.
func tooDeep(raw []byte) int {
	depth := 0
	for at := 0; at < len(raw); at++ {
		switch raw[at] {
		case '"':
			for at++; at < len(raw) && raw[at] != '"'; at++ {
				if raw[at] == '\\' {
					at++
				}
			}
		case '/':
			at = skipComment(raw, at)
		case '[', '{':
			if depth++; depth > maxDepth {
				return LineOf(raw, at)
			}
		case ']', '}':
			depth--
		}
	}
	return 0
}

// skipComment returns the offset of the last byte of a comment that begins at
// at, or at itself.
func skipComment(raw []byte, at int) int {
	if at+1 >= len(raw) {
		return at
	}
	switch raw[at+1] {
	case '/':
		for at++; at+1 < len(raw) && raw[at+1] != '\n'; at++ {
		}
	case '*':
		for at += 3; at < len(raw) && (raw[at-1] != '*' || raw[at] != '/'); at++ {
		}
	}
	return at
}

type jsonReader struct {
	file  *File
	lines lines
}

func (r *jsonReader) node(v *hujson.Value) (*Node, error) {
	n := &Node{Line: r.lines.at(v.StartOffset)}
	switch v := v.Value.(type) {
	case hujson.Literal:
		return r.literal(n, v)
	case *hujson.Array:
		n.Kind = List
		for i := range v.Elements {
			item, err := r.node(&v.Elements[i])
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
	case *hujson.Object:
		n.Kind = Map
		seen := make(map[string]bool, len(v.Members))
		for i := range v.Members {
			name, ok := v.Members[i].Name.Value.(hujson.Literal)
			if !ok {
				return nil, errs.New(errs.Internal, "%s: a key is no string", r.file.Path)
			}
			field := Field{Key: name.String(), Line: r.lines.at(v.Members[i].Name.StartOffset)}
			if seen[field.Key] {
				return nil, r.file.Wrong(field.Line, "%q is there twice", field.Key)
			}
			seen[field.Key] = true
			var err error
			if field.Value, err = r.node(&v.Members[i].Value); err != nil {
				return nil, err
			}
			n.Fields = append(n.Fields, field)
		}
	default:
		return nil, errs.New(errs.Internal, "%s: %s", r.file.Path, fmt.Sprintf("a value is a %T", v))
	}
	return n, nil
}

func (r *jsonReader) literal(n *Node, v hujson.Literal) (*Node, error) {
	switch v.Kind() {
	case 'n':
		n.Kind = Null
	case 't', 'f':
		n.Kind, n.Bool = Bool, v.Bool()
	case '"':
		n.Kind, n.Text = String, v.String()
	default:
		n.Kind, n.Number, n.Text = Number, v.Float(), string(v)
	}
	return n, nil
}
