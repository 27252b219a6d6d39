package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/run/workspace/source"
)

// shape writes a tree in one line, with the line of each node.
func shape(n *source.Node) string {
	switch n.Kind {
	case source.List:
		var all []string
		for _, i := range n.Items {
			all = append(all, shape(i))
		}
		return fmt.Sprintf("%d[%s]", n.Line, strings.Join(all, " "))
	case source.Map:
		var all []string
		for _, f := range n.Fields {
			all = append(all, fmt.Sprintf("%d:%s=%s", f.Line, f.Key, shape(f.Value)))
		}
		return fmt.Sprintf("%d{%s}", n.Line, strings.Join(all, " "))
	}
	return fmt.Sprintf("%d(%v %s)", n.Line, n.Kind, n.Text)
}

func TestTrees(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a.json", "\xef\xbb\xbf{ // c\n\"a\": [1,\n\"x\",],\n/* b */ \"b\": {\"c\": null, \"d\": true},}", "1{2:a=2[2(a number 1) 3(a string x)] 4:b=4{4:c=4(nothing ) 4:d=4(true or false )}}"},
		{"a.json", `"a\u00e4\n"`, "1(a string aä\n)"},
		{"a.yaml", "a: [1, x]\nb:\n  - c: true\n  -\n", "1{1:a=1[1(a number 1) 1(a string x)] 2:b=3[3{3:c=3(true or false true)} 4(nothing )]}"},
		{"a.yaml", "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n", "1{1:a=1{1:b=1(a number 1)} 2:c=1{1:b=1(a number 1)} 3:d=4{5:e=5(a number 2) 1:b=1(a number 1)}}"},
		{"a.yaml", "a: |\n  two\n  lines\nb: 'it''s'\n1: x\n", "1{1:a=1(a string two\nlines\n) 4:b=4(a string it's) 5:1=5(a string x)}"},
		{"a.yaml", "", "1{}"},
		{"a.yaml", "# only a comment\n", "1{}"},
		{"a.yaml", "---\na: 1\n", "2{2:a=2(a number 1)}"},
	} {
		read := source.YAML
		if strings.HasSuffix(c.name, "json") {
			read = source.JSON
		}
		f, err := read(c.name, []byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := shape(f.Root); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for _, c := range []struct{ name, text, says string }{
		{"a.json", "", "a.json"}, {"a.json", "{\n\"a\" 1}", "a.json:2: is not JSON"}, {"a.json", "{} x", "a.json:1"}, {"a.json", deep, "a.json:1: lists and objects are nested"},
		{"a.json", "{\"a\":1,\n\"a\":2}", `a.json:2: "a" is there twice`}, {"a.json", "\"\xff\"", "not UTF-8"}, {"a.json", "/* " + deep, "a.json"},
		{"a.yaml", "a: [", "a.yaml"}, {"a.yaml", deep, "nested"}, {"a.yaml", strings.Repeat("- ", 10_000), "nested"}, {"a.yaml", "a: 1\na: 2\n", "a.yaml"},
		{"a.yaml", "a: *x\n", "a.yaml"}, {"a.yaml", "a: 1\n---\nb: 2\n", "more than one document"}, {"a.yaml", "<<: [1]\n", "a.yaml:1: << takes a mapping"}, {"a.yaml", "\xff", "not UTF-8"},
		{"a.yaml", "a: &x [*x]\n", "a.yaml"},
	} {
		read := source.YAML
		if strings.HasSuffix(c.name, "json") {
			read = source.JSON
		}
		_, err := read(c.name, []byte(c.text))
		if errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40q: %v, want something with %q", c.text, err, c.says)
		}
	}
}

// TestAliasesShare: the laughs stay as few nodes as they are written.
func TestAliasesShare(t *testing.T) {
	var text strings.Builder
	text.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&text, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1)
	}
	f, err := source.YAML("a.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	last := f.Root.Get("a59")
	if len(last.Items) != 3 || last.Items[0] != last.Items[1] {
		t.Error("an alias is a copy")
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, source.MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Read(big, "big"); errs.CodeOf(err) != errs.InvalidArgument {
		t.Errorf("big: %v", err)
	}
	if _, err := source.Read(dir, "x"); errs.CodeOf(err) != errs.InvalidArgument {
		t.Errorf("a folder: %v", err)
	}
	if _, err := source.Read(filepath.Join(dir, "none"), "x"); !os.IsNotExist(err) {
		t.Errorf("none: %v", err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"dependsOn", "inputs", "outputs", "env", "cache"}
	for word, want := range map[string]string{"dependson": "dependsOn", "dependOn": "dependsOn", "input": "inputs", "outptus": "outputs", "enf": "env", "cahce": "cache", "zzzzzz": "", "": "", strings.Repeat("x", 300): ""} {
		if got := source.Nearest(word, names); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
}

func TestLineOf(t *testing.T) {
	raw := []byte("a\nb\nc")
	for offset, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 4: 3, 99: 3} {
		if got := source.LineOf(raw, offset); got != want {
			t.Errorf("LineOf(%d) = %d, want %d", offset, got, want)
		}
	}
}
