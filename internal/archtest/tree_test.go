package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "brood"

// source is one parsed Go file.
type source struct {
	path      string // from the root of the repository, with slashes
	pkg       string // folder, from the root
	test      bool
	generated bool
	ast       *ast.File
	fset      *token.FileSet
}

// at names a position of the file for messages.
func (s source) at(p token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(p).Line)
}

// imports returns the paths that the file imports.
func (s source) imports() []string {
	var all []string
	for _, i := range s.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// tree parses every Go file of the repository.
func tree(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{
			path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"),
			generated: ast.IsGenerated(f), ast: f, fset: fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found below %s: the rules would prove nothing", len(all), root)
	}
	return all
}
