package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"brood/internal/base/errs"
)

// canonical returns v's one JSON encoding, so that equal manifests have equal
// digests whoever wrote them:
//
//   - UTF-8, no white space between tokens, no newline at the end;
//   - keys of objects sorted by their bytes, each once;
//   - numbers are integers in decimal, without sign for zero, without
//     exponent or fraction;
//   - strings escape the quote and the backslash with a backslash, and bytes
//     below 0x20 as \u00xx in lower case; everything else stands as it is.
//
// Optional fields that are empty are left out.
func canonical(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(b))
	if err := emit(&out, tree); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func emit(out *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case json.Number:
		return emitNumber(out, v.String())
	case string:
		return emitString(out, v)
	case []any:
		out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := emit(out, e); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case map[string]any:
		return emitObject(out, v)
	default:
		return fmt.Errorf("a %T has no canonical form", v)
	}
	return nil
}

func emitObject(out *bytes.Buffer, m map[string]any) error {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := emitString(out, k); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := emit(out, m[k]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func emitNumber(out *bytes.Buffer, s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		out.WriteString(s)
		return nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		out.WriteString(s)
		return nil
	}
	return errs.New(errs.InvalidArgument, "number %.40q is not an integer of 64 bits", s)
}

func emitString(out *bytes.Buffer, s string) error {
	if !utf8.ValidString(s) {
		return errs.New(errs.InvalidArgument, "text %.40q is not UTF-8", s)
	}
	out.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < 0x20:
			fmt.Fprintf(out, `\u%04x`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return nil
}
