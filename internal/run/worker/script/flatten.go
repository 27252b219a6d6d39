package script

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// text is how JavaScript turns a value of package.json into a string.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case json.Number:
		if f, err := x.Float64(); err == nil && f > -1e15 && f < 1e15 {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return x.String()
	}
	return fmt.Sprint(v)
}

// flatten calls put for every value of v that is no object or list, with its
// way there joined by underscores.
func flatten(name string, v any, put func(name string, v any)) {
	join := func(key string) string {
		if name == "" {
			return key
		}
		return name + "_" + key
	}
	switch x := v.(type) {
	case map[string]any:
		for key, value := range x {
			flatten(join(key), value, put)
		}
	case []any:
		for i, value := range x {
			flatten(join(strconv.Itoa(i)), value, put)
		}
	default:
		put(name, v)
	}
}

// pick copies some fields.
func (m *manifest) pick(names ...string) map[string]any {
	some := map[string]any{}
	for _, n := range names {
		if v, ok := m.fields[n]; ok {
			some[n] = v
		}
	}
	return some
}

// namedBins is the field bin with the short form written out, and paths as
// the managers clean them.
func (m *manifest) namedBins() (map[string]any, bool) {
	clean := func(s string) string {
		for strings.HasPrefix(s, "./") {
			s = strings.TrimLeft(s[1:], "/")
		}
		return s
	}
	switch x := m.fields["bin"].(type) {
	case string:
		_, short, ok := strings.Cut(m.name, "/")
		if !ok {
			short = m.name
		}
		return map[string]any{short: clean(x)}, true
	case map[string]any:
		bins := map[string]any{}
		for name, file := range x {
			if s, ok := file.(string); ok {
				bins[name] = clean(s)
			}
		}
		return bins, true
	}
	return nil, false
}

// oneLine is how some managers show a value with several.
func oneLine(s string) string {
	if !strings.Contains(s, "\n") {
		return s
	}
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b)
}
