package checkpoint

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox"
)

var update = flag.Bool("update", false, "write the golden files")

func sampleManifest() *Manifest {
	sum := digest.Of([]byte("abc"))
	return &Manifest{
		Format: Format, Driver: "gvisor", Runtime: "0123abcd", Capture: Memory,
		Needs: Needs{Arch: "amd64", CPU: []string{"aes", "avx2"}, Kernel: "6.1.0 \"odd\" <&> ü \u2028\n\x01\\"},
		Shape: sandbox.Shape{CPUs: 2, MemoryMiB: 1 << 40},
		Base: Base{Kind: Host, Digest: sum, Machine: digest.Of([]byte("machine")), Open: []Stamp{
			{Path: "usr/bin/python3.11", Size: 6_800_000, MtimeNs: 1_700_000_000_123_456_789},
		}},
		Parent: digest.Of([]byte("parent")), MemoryUsed: 1<<64 - 1,
		Files: []File{
			{Path: "checkpoint.img", Size: 3, SHA256: sum, Cut: ByContent, Chunks: []Chunk{{3, sum}}},
			{Path: "sub/pages.img", Size: 70_000, SHA256: sum, Cut: ByOffset, Chunks: []Chunk{{65536, sum}, {4464, digest.Of(nil)}}},
		},
	}
}

func TestManifestGolden(t *testing.T) {
	b, d, err := sampleManifest().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "manifest-1.json")
	if *update {
		if err := os.WriteFile(golden, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("format %d changed: a released format never does\n got %s\nwant %s", Format, b, want)
	}
	const known = "39722d3495f5395c77160453f68b1aacc470985720eba75b0c5c5e4c75ccc383"
	if d != known {
		t.Errorf("digest %s, want %s", d, known)
	}
	m, again, err := DecodeManifest(b)
	if err != nil || again != d {
		t.Fatalf("decoded: %v", err)
	}
	if again, _, _ := m.Encode(); !bytes.Equal(again, b) {
		t.Error("decoding and encoding changed it")
	}
}

func TestManifestRefusals(t *testing.T) {
	spoil := map[string]func(*Manifest){
		"no files":         func(m *Manifest) { m.Files = nil },
		"absolute path":    func(m *Manifest) { m.Files[0].Path = "/etc/passwd" },
		"upward path":      func(m *Manifest) { m.Files[0].Path = "../x" },
		"inner upward":     func(m *Manifest) { m.Files[0].Path = "a/../../x" },
		"unclean path":     func(m *Manifest) { m.Files[0].Path = "a//b" },
		"dot":              func(m *Manifest) { m.Files[0].Path = "." },
		"backslash":        func(m *Manifest) { m.Files[0].Path = `a\b` },
		"zero byte":        func(m *Manifest) { m.Files[0].Path = "a\x00b" },
		"long path":        func(m *Manifest) { m.Files[0].Path = strings.Repeat("a", 5000) },
		"twice":            func(m *Manifest) { m.Files[1].Path = m.Files[0].Path },
		"unsorted":         func(m *Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] },
		"short chunks":     func(m *Manifest) { m.Files[0].Size++ },
		"empty file":       func(m *Manifest) { m.Files[0].Size, m.Files[0].Chunks = 0, nil },
		"large chunk":      func(m *Manifest) { m.Files[0].Size = maxChunk + 1; m.Files[0].Chunks[0].Size = maxChunk + 1 },
		"negative chunk":   func(m *Manifest) { m.Files[0].Size = -1; m.Files[0].Chunks[0].Size = -1 },
		"bad digest":       func(m *Manifest) { m.Files[0].SHA256 = "../../x" },
		"cut":              func(m *Manifest) { m.Files[0].Cut = "" },
		"format":           func(m *Manifest) { m.Format = 0 },
		"capture":          func(m *Manifest) { m.Capture = "x" },
		"no driver":        func(m *Manifest) { m.Driver = "" },
		"base kind":        func(m *Manifest) { m.Base.Kind = "" },
		"base digest":      func(m *Manifest) { m.Base.Digest = "" },
		"no machine":       func(m *Manifest) { m.Base.Machine = "" },
		"bound image":      func(m *Manifest) { m.Base.Kind = EROFS },
		"open path":        func(m *Manifest) { m.Base.Open[0].Path = "/x" },
		"parent":           func(m *Manifest) { m.Parent = "x" },
		"unsorted feature": func(m *Manifest) { m.Needs.CPU = []string{"b", "a"} },
		"not UTF-8":        func(m *Manifest) { m.Driver = "a\xff" },
	}
	for name, f := range spoil {
		m := sampleManifest()
		f(m)
		if _, _, err := m.Encode(); !errs.Is(err, errs.InvalidArgument) && name != "not UTF-8" {
			t.Errorf("%s: encoded: %v", name, err)
		}
		b, err := json.Marshal(m)
		if err != nil {
			continue
		}
		if _, _, err := DecodeManifest(b); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func TestOnlyCanonicalBytesAreRead(t *testing.T) {
	b, _, err := sampleManifest().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]string{
		"newline":     string(b) + "\n",
		"space":       strings.Replace(string(b), `":`, `": `, 1),
		"extra field": `{"a":1,` + string(b[1:]),
		"escape":      strings.Replace(string(b), `"gvisor"`, `"\u0067visor"`, 1),
		"float":       strings.Replace(string(b), `"format":1`, `"format":1.0`, 1),
		"twice":       strings.Replace(string(b), `"format":1`, `"format":1,"format":1`, 1),
		"chunk zeros": strings.Replace(string(b), `"3:`, `"03:`, 1),
		"chunk sign":  strings.Replace(string(b), `"3:`, `"+3:`, 1),
		"null":        "null",
		"empty":       "",
	} {
		if other == string(b) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, _, err := DecodeManifest([]byte(other)); !errs.Is(err, errs.DataLoss) {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := strings.Replace(string(b), `"format":1`, `"format":2`, 1)
	if _, _, err := DecodeManifest([]byte(newer)); !errs.Is(err, errs.Unsupported) {
		t.Errorf("newer format: %v", err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	b, _, err := sampleManifest().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"files":[{"path":"../x","chunks":["1:"]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, d, err := DecodeManifest(b)
		if err != nil {
			return
		}
		again, d2, err := m.Encode()
		if err != nil || !bytes.Equal(again, b) || d != d2 || d != digest.Of(b) {
			t.Fatalf("accepted bytes that are not canonical: %v", err)
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Path) {
				t.Fatalf("path %q leaves its folder", file.Path)
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"created":"2024-01-01T00:00:00Z","used":"2024-01-01T00:00:00Z","pinned":true}`))
	f.Add([]byte(`{"format":1,"pinned":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if err := recordSchema.Decode("x", b, &r); err == nil {
			if out, err := json.Marshal(r); err == nil {
				var again Record
				if err := json.Unmarshal(out, &again); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
