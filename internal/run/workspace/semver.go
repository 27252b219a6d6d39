package workspace

import (
	"cmp"
	"strconv"
	"strings"

	"brood/internal/base/lazy"
)

// version is a semantic version; build metadata is cut.
type version struct {
	n   [3]uint64
	pre []string
}

var (
	versionForm = lazy.Regexp(`^[v=\s]*(\d{1,15})\.(\d{1,15})\.(\d{1,15})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)
	partForm    = lazy.Regexp(`^(<=|>=|<|>|=|~>|~|\^)?\s*[v=\s]*(\d{1,15}|[xX*])(?:\.(\d{1,15}|[xX*])(?:\.(\d{1,15}|[xX*])(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?)?)?$`)
	hyphenForm  = lazy.Regexp(`^\s*(\S+)\s+-\s+(\S+)\s*$`)
	operator    = lazy.Regexp(`(<=|>=|<|>|=|~>|~|\^)\s+`)
)

func parseVersion(s string) (version, bool) {
	m := versionForm().FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return version{}, false
	}
	v := version{}
	for i := range 3 {
		v.n[i], _ = strconv.ParseUint(m[i+1], 10, 64) // the form has digits only
	}
	if m[4] != "" {
		v.pre = strings.Split(m[4], ".")
	}
	return v, true
}

func (v version) compare(o version) int {
	for i := range 3 {
		if c := cmp.Compare(v.n[i], o.n[i]); c != 0 {
			return c
		}
	}
	if (len(v.pre) == 0) != (len(o.pre) == 0) {
		return len(o.pre) - len(v.pre) // a release is above its pre-releases
	}
	for i := range min(len(v.pre), len(o.pre)) {
		if c := compareIdentifier(v.pre[i], o.pre[i]); c != 0 {
			return c
		}
	}
	return len(v.pre) - len(o.pre)
}

func compareIdentifier(a, b string) int {
	x, xerr := strconv.ParseUint(a, 10, 64)
	y, yerr := strconv.ParseUint(b, 10, 64)
	switch {
	case xerr == nil && yerr == nil:
		return cmp.Compare(x, y)
	case xerr == nil:
		return -1
	case yerr == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// bound is one side of an interval.
type bound struct {
	op string // "<", "<=", ">", ">=", "="
	v  version
}

func (b bound) holds(v version) bool {
	c := v.compare(b.v)
	switch b.op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return c == 0
}

// constraint is a range of npm's kind: alternatives of bounds that must all hold.
type constraint [][]bound

// parseConstraint reads a range of npm; false: it is none (a tag, for one).
func parseConstraint(s string) (constraint, bool) {
	var c constraint
	for _, alternative := range strings.Split(s, "||") {
		bounds, ok := parseAlternative(alternative)
		if !ok {
			return nil, false
		}
		c = append(c, bounds)
	}
	return c, true
}

func parseAlternative(s string) ([]bound, bool) {
	if m := hyphenForm().FindStringSubmatch(s); m != nil {
		low, lok := parsePart(">=" + m[1])
		high, hok := parsePart("<=" + m[2])
		return append(low, high...), lok && hok
	}
	var all []bound
	for _, part := range strings.FieldsFunc(operator().ReplaceAllString(s, "$1"), func(r rune) bool { return r == ' ' || r == '\t' || r == ',' }) {
		bounds, ok := parsePart(part)
		if !ok {
			return nil, false
		}
		all = append(all, bounds...)
	}
	return all, true
}

// parsePart reads one comparator, with x for what is left open.
func parsePart(s string) ([]bound, bool) {
	m := partForm().FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	v, given := version{}, 0
	for i := range 3 {
		n, err := strconv.ParseUint(m[i+2], 10, 64)
		if err != nil {
			break // an x, or nothing
		}
		v.n[i], given = n, i+1
	}
	if given == 3 && m[5] != "" {
		v.pre = strings.Split(m[5], ".")
	}
	return boundsOf(m[1], v, given), true
}

// boundsOf turns an operator and a version of which given numbers are known
// into bounds.
func boundsOf(op string, v version, given int) []bound {
	from, upto := bound{">=", v}, bound{"<", next(v, given)}
	switch op {
	case "^":
		return caret(from, v, given)
	case "~", "~>":
		if given == 0 {
			return nil
		}
		return []bound{from, {"<", next(v, min(given, 2))}}
	case "", "=":
		if given == 3 {
			return []bound{{"=", v}}
		}
		if given == 0 {
			return nil
		}
		return []bound{from, upto}
	}
	if given == 3 {
		return []bound{{op, v}}
	}
	switch {
	case given == 0 && (op == "<" || op == ">"):
		return []bound{{"<", version{pre: []string{"0"}}}} // nothing
	case given == 0:
		return nil
	case op == ">":
		return []bound{{">=", next(v, given)}}
	case op == "<=":
		return []bound{upto}
	}
	return []bound{{op, v}}
}

func caret(from bound, v version, given int) []bound {
	if given == 0 {
		return nil
	}
	at := 0
	for at < given-1 && v.n[at] == 0 {
		at++
	}
	return []bound{from, {"<", next(v, at+1)}}
}

// next is the lowest version above all that share the first given numbers; it
// is below that version's own pre-releases too.
func next(v version, given int) version {
	up := version{pre: []string{"0"}}
	if given == 0 {
		return up
	}
	copy(up.n[:given], v.n[:given])
	up.n[given-1]++
	return up
}

// allows says whether a version is in the range. A pre-release is only where a
// bound of the same numbers is one too.
func (c constraint) allows(v version) bool {
	for _, bounds := range c {
		if allHold(bounds, v) {
			return true
		}
	}
	return false
}

func allHold(bounds []bound, v version) bool {
	named := len(v.pre) == 0
	for _, b := range bounds {
		if !b.holds(v) {
			return false
		}
		if len(b.v.pre) > 0 && b.v.n == v.n {
			named = true
		}
	}
	return named
}
