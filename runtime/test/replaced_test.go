package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/sandbox/driver/gvisor/launch"
)

// A folder that was moved away and made again is the new one for sandboxes that
// are made later, whether it is mounted or the root; those that run keep the
// old one. So it is when another launcher takes over between.
func TestReplacedFolders(t *testing.T) {
	w := newWorld(t)
	data := filepath.Join(filepath.Dir(w.dir), "shown")
	replace := func(dir, content string) {
		t.Helper()
		if _, err := os.Stat(dir); err == nil {
			if err := os.Rename(dir, dir+"-before-"+content); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := func() launch.Root {
		r := w.skeleton()
		r.Host.Binds = append(r.Host.Binds, launch.Bind{Source: data, Target: "/data"})
		return r
	}
	replace(data, "one")
	guests := map[string]*guest{"one": w.run(w.container("one", root()))}
	replace(data, "two")
	guests["two"] = w.run(w.container("two", root()))
	if err := os.RemoveAll(data + "-before-two"); err != nil { // what "one" has
		t.Fatal(err)
	}
	w.killLauncher()
	replace(data, "three")
	guests["three"] = w.run(w.container("three", root()))
	if err := os.Rename(root().Host.Dir, data+"-skeleton"); err != nil {
		t.Fatal(err)
	}
	guests["four"] = w.run(w.container("four", root()))
	for id, g := range guests {
		if got := g.ask("list /usr"); !strings.Contains(got, "bin") {
			t.Errorf("%s has in /usr: %q", id, got)
		}
	}
	guests["two"].want("read /data/f", "two")
	guests["three"].want("read /data/f", "three")
	guests["four"].want("read /data/f", "three")
}

// Images are told apart by their folders, and one whose file was made again is
// the same one: for sandboxes, and for what is restored.
func TestImagesOfOneFileName(t *testing.T) {
	w := newWorld(t)
	first := w.image()
	content, err := os.ReadFile(first.EROFS)
	if err != nil {
		t.Fatal(err)
	}
	again := func(path string) launch.Root {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return launch.Root{EROFS: path}
	}
	one := w.run(w.container("one", first))
	saved := w.checkpoint("one")
	other := w.run(w.container("two", again(filepath.Join(filepath.Dir(first.EROFS), "another", "root.erofs"))))
	other.want("list /", one.ask("list /"))
	again(first.EROFS)
	w.run(w.container("three", first)).want("list /opt", "guest")
	w.restore(w.container("four", first), saved).want("list /opt", "guest")
	one.want("list /opt", "guest")
	w.destroy("one")
	w.destroy("three")
	w.restore(w.container("five", first), saved).want("list /opt", "guest")
}
