package key

import (
	"slices"
	"strings"

	"brood/internal/base/digest"
)

// environ is the run's environment, sorted by name.
type environ struct {
	names  []string
	values map[string]string
}

func newEnviron(list []string) environ {
	e := environ{values: make(map[string]string, len(list))}
	for _, kv := range list {
		name, v, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if _, dup := e.values[name]; !dup {
			e.names = append(e.names, name)
		}
		e.values[name] = v // the last one counts, as in execve's callers
	}
	slices.Sort(e.names)
	return e
}

// items are the parts for the variables that patterns name. One that is named
// in full is a part even when it is not set.
func (e environ) items(patterns []string) []Item {
	var take, leave []string
	for _, p := range patterns {
		if rest, ok := strings.CutPrefix(p, "!"); ok {
			leave = append(leave, rest)
		} else {
			if strings.HasPrefix(p, `\!`) {
				p = p[1:]
			}
			take = append(take, p)
		}
	}
	out := func(name string) bool {
		return slices.ContainsFunc(leave, func(p string) bool { return matchName(p, name) })
	}
	var names []string
	for _, p := range take {
		if !strings.Contains(strings.ReplaceAll(p, `\*`, ""), "*") {
			names = append(names, strings.ReplaceAll(p, `\*`, "*"))
			continue
		}
		for _, n := range e.names {
			if matchName(p, n) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	var all []Item
	for _, n := range slices.Compact(names) {
		if !out(n) {
			all = append(all, Item{Name: n, Value: e.state(n)})
		}
	}
	return all
}

// state tells unset, empty and every value apart without telling the value.
func (e environ) state(name string) string {
	v, set := e.values[name]
	switch {
	case !set:
		return "unset"
	case v == "":
		return "empty"
	}
	return digest.Of([]byte(name + "=" + v)).Short()
}

// matchName matches a name against a pattern in which * stands for any
// characters and \* for itself.
func matchName(pattern, name string) bool {
	var parts []string
	for rest := pattern; ; {
		at := star(rest)
		if at < 0 {
			parts = append(parts, unescape(rest))
			break
		}
		parts = append(parts, unescape(rest[:at]))
		rest = rest[at+1:]
	}
	if len(parts) == 1 {
		return parts[0] == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, p)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// star returns where the first * that is not escaped is.
func star(s string) int {
	for i := range len(s) {
		if s[i] == '*' && (i == 0 || s[i-1] != '\\') {
			return i
		}
	}
	return -1
}

func unescape(s string) string { return strings.ReplaceAll(s, `\*`, "*") }
