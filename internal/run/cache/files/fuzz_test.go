package files

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"brood/internal/run/cache/stamp"
)

// indexes are index files that git wrote, of versions 2 to 4.
func indexes(f *testing.F) {
	all, err := filepath.Glob("testdata/index-*")
	if err != nil || len(all) == 0 {
		f.Fatal("no index files in testdata", err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if got, err := parseIndex(b, 20); err != nil || len(got) < 5 {
			f.Fatalf("%s: %d entries, %v", name, len(got), err)
		}
		f.Add(b)
	}
}

func FuzzIndex(f *testing.F) {
	indexes(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, idLen := range []int{20, 32} {
			all, err := parseIndex(b, idLen)
			if err != nil {
				continue
			}
			for _, r := range all {
				if id, err := hex.DecodeString(r.id); err != nil || len(id) != idLen || strings.Contains(r.path, "\x00") {
					t.Errorf("entry %+v", r)
				}
			}
		}
	})
}

// FuzzFolders reads indexes of folders whose sum is right, as one that was
// written by another version or with intent may be.
func FuzzFolders(f *testing.F) {
	x := folders{
		rules:  []ruleFile{{path: "/w/.gitignore", stat: stamp.Stat{Size: 1, MTime: -2, CTime: 3, Ino: 1 << 63, Mode: 5}}, {path: "/none"}},
		all:    []folder{{path: "", hidden: []string{"a", "b/"}}, {path: "c", stat: stamp.Stat{Ino: 7}}},
		others: []string{"c/d", "e/"},
	}
	f.Add(x.encode())
	f.Add((&folders{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		body := b[:max(0, len(b)-sha256.Size)]
		sum := sha256.Sum256(body)
		x := decodeFolders(append(slices.Clone(body), sum[:]...))
		if x == nil {
			return
		}
		if again := decodeFolders(x.encode()); !reflect.DeepEqual(again, x) {
			t.Errorf("%+v is read again as %+v", x, again)
		}
	})
}

func FuzzDebug(f *testing.F) {
	f.Add("100644 de4d1f007dd195ea685034cbda7209013105044b 0\t.gitignore\x00  ctime: 1:2\n  mtime: 3:4\n  dev: 5\tino: 6\n  uid: 0\tgid: 0\n  size: 18\tflags: 0\n")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseDebug([]byte(s)) })
}

func FuzzIgnore(f *testing.F) {
	f.Add("*.log\n!keep.log\n/dist/\n#x\n\\#y\na\\ \n**/z\n", "a/b.log")
	f.Fuzz(func(_ *testing.T, text, name string) { ignored(parseIgnore("", text), name, false) })
}
