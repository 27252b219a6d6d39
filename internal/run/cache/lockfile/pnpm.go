package lockfile

import (
	"slices"
	"strconv"
	"strings"
)

// block is a key of pnpm-lock.yaml with its value and what is indented below it.
type block struct {
	key, value string
	kids       []*block
	text       strings.Builder // the lines below, as they are
}

func (b *block) kid(key string) *block {
	if b == nil {
		return nil
	}
	for _, k := range b.kids {
		if k.key == key {
			return k
		}
	}
	return nil
}

func (b *block) children() []*block {
	if b == nil {
		return nil
	}
	return b.kids
}

// mostDeep bounds nesting; the file needs five levels.
const mostDeep = 64

// parseBlocks reads YAML of the plain kind that pnpm writes. What it cannot
// tell apart it keeps as text; ok is false for what would need a real parser.
func parseBlocks(text string) (top *block, ok bool) {
	type level struct {
		indent int
		b      *block
	}
	top = &block{}
	stack := []level{{-1, top}}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		body := strings.TrimLeft(line, " ")
		if body == "" || body[0] == '#' || line == "---" {
			continue
		}
		if body[0] == '\t' || strings.HasPrefix(body, "? ") || body[0] == '&' || body[0] == '*' || line == "..." {
			return nil, false
		}
		indent := len(line) - len(body)
		for indent <= stack[len(stack)-1].indent {
			stack = stack[:len(stack)-1]
		}
		for _, l := range stack[1:min(len(stack), 3)] { // a section and its entry
			l.b.text.WriteString(line + "\n")
		}
		key, value, found := splitKey(body)
		if !found {
			continue // an item of a list, or part of a long text
		}
		b := &block{key: key, value: value}
		parent := stack[len(stack)-1].b
		parent.kids = append(parent.kids, b)
		if stack = append(stack, level{indent, b}); len(stack) > mostDeep {
			return nil, false
		}
	}
	return top, true
}

// splitKey takes a line apart at its key.
func splitKey(s string) (key, value string, ok bool) {
	if s[0] == '\'' || s[0] == '"' {
		key, rest, ok := quoted(s)
		if !ok || rest == "" || rest[0] != ':' {
			return "", "", false
		}
		return key, scalar(strings.TrimSpace(rest[1:])), true
	}
	if at := strings.Index(s, ": "); at > 0 {
		return s[:at], scalar(strings.TrimSpace(s[at+2:])), true
	}
	if key, ok := strings.CutSuffix(s, ":"); ok && key != "" && !strings.HasPrefix(key, "- ") {
		return key, "", true
	}
	return "", "", false
}

// quoted reads a quoted text at the beginning of s.
func quoted(s string) (text, rest string, ok bool) {
	if s[0] == '"' {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false
		}
		text, err = strconv.Unquote(q)
		return text, s[len(q):], err == nil
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '\'' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '\'' {
			i++
			continue
		}
		return strings.ReplaceAll(s[1:i], "''", "'"), s[i+1:], true
	}
	return "", "", false
}

func scalar(s string) string {
	if s != "" && (s[0] == '\'' || s[0] == '"') {
		if text, rest, ok := quoted(s); ok && rest == "" {
			return text
		}
	}
	return s
}

// elsewhere are the sections that say nothing that the packages of a project
// do not say: overrides and patches show in what was chosen.
var elsewhere = []string{"importers", "packages", "snapshots", "overrides", "patchedDependencies", "catalogs", "time",
	"dependencies", "devDependencies", "optionalDependencies", "specifiers"}

var kinds = []string{"dependencies", "devDependencies", "optionalDependencies"}

func parsePnpm(text string) *Lock {
	top, ok := parseBlocks(text)
	if !ok {
		return nil
	}
	version := top.kid("lockfileVersion")
	if version == nil || !strings.HasPrefix(version.value, "6.") && !strings.HasPrefix(version.value, "9.") {
		return nil
	}
	p := pnpm{lock: &Lock{projects: map[string][]int{}}, index: map[string]int{}, slash: version.value[0] == '6'}
	for _, section := range top.kids {
		if !slices.Contains(elsewhere, section.key) {
			p.lock.general = append(p.lock.general, Package{section.key, section.value + " " + short(section.text.String())})
		}
	}
	slices.SortFunc(p.lock.general, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	p.add(top)
	importers := top.kid("importers").children()
	if importers == nil {
		top.key = "."
		importers = []*block{top}
	}
	for _, project := range importers {
		if project.value != "" && project.value != "{}" {
			return nil
		}
		p.lock.projects[project.key] = p.importer(project)
	}
	return p.lock
}

type pnpm struct {
	lock  *Lock
	index map[string]int
	slash bool // names of packages begin with "/"
}

// add makes a node of every package. Format 9 says in "snapshots" what a
// package depends on, for each set of peers, and in "packages" what it is.
func (p *pnpm) add(top *block) {
	packages := top.kid("packages").children()
	described := make(map[string]string, len(packages))
	for _, b := range packages {
		described[b.key] = b.value + "\n" + b.text.String()
	}
	entries := packages
	if snapshots := top.kid("snapshots"); snapshots != nil {
		entries = snapshots.kids
	}
	for _, b := range entries {
		base, _, _ := strings.Cut(b.key, "(")
		about := described[b.key] + described[base] + "\x00" + b.value + "\n" + b.text.String()
		p.index[b.key] = len(p.lock.nodes)
		p.lock.nodes = append(p.lock.nodes, node{Package: Package{b.key, short(about)}})
	}
	for i, b := range entries {
		var deps []int
		for _, kind := range kinds {
			for _, d := range b.kid(kind).children() {
				deps = p.append(deps, d.key, d.value)
			}
		}
		p.lock.nodes[i].deps = sortUnique(deps)
	}
}

func (p *pnpm) importer(project *block) []int {
	var deps []int
	for _, kind := range kinds {
		for _, d := range project.kid(kind).children() {
			version := d.value
			if v := d.kid("version"); v != nil {
				version = v.value
			}
			deps = p.append(deps, d.key, version)
		}
	}
	return sortUnique(deps)
}

// append adds the package that name and version mean. A link leads to a
// project of the workspace and ends there; a package that the file does not
// have counts by its version alone.
func (p *pnpm) append(deps []int, name, version string) []int {
	if strings.HasPrefix(version, "link:") {
		return deps
	}
	full := name + "@" + version
	if p.slash {
		full = "/" + full
	}
	for _, key := range []string{full, version} {
		if i, ok := p.index[key]; ok {
			return append(deps, i)
		}
	}
	p.index[full] = len(p.lock.nodes)
	p.lock.nodes = append(p.lock.nodes, node{Package: Package{full, version}})
	return append(deps, p.index[full])
}
