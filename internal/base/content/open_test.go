package content_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"brood/internal/base/content"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("all of it"), 0o600))
	f, err := content.Open(path)
	must(t, err)
	b, err := io.ReadAll(f)
	if must(t, err); string(b) != "all of it" || f.Name() != path {
		t.Errorf("%q in %s", b, f.Name())
	}
	must(t, f.Close())
	var wrong *fs.PathError
	if _, err := content.Open(path + "x"); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &wrong) || wrong.Path != path+"x" {
		t.Error(err)
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f")
	must(b, os.WriteFile(path, nil, 0o600))
	for name, open := range map[string]func(string) (*os.File, error){"ours": content.Open, "os": os.Open} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := open(path)
				must(b, err)
				must(b, f.Close())
			}
		})
	}
}
