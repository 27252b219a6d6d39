package content_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("all of it"), 0o600))
	must(t, os.Symlink("f", filepath.Join(dir, "link")))
	for _, name := range []string{path, filepath.Join(dir, "link")} {
		b, err := content.ReadFile(name, "f", 9)
		if must(t, err); string(b) != "all of it" {
			t.Errorf("%s: %q", name, b)
		}
	}
	if _, err := content.ReadFile(path, "f", 8); errs.CodeOf(err) != errs.InvalidArgument {
		t.Errorf("too large: %v", err)
	}
	head, err := content.ReadHead(path, "f", 3)
	if must(t, err); string(head) != "all" {
		t.Errorf("the head is %q", head)
	}
	if _, err := content.ReadFile(path+"x", "f", 9); !os.IsNotExist(err) {
		t.Errorf("not there: %v", err)
	}
}

// TestReadFileRefusesWhatIsNoFile hangs where a pipe is waited for.
func TestReadFileRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // the path of a socket is bounded
	must(t, syscall.Mkfifo("pipe", 0o600))
	l, err := net.Listen("unix", "socket")
	must(t, err)
	defer l.Close()
	must(t, os.Symlink("/dev/zero", "device"))
	must(t, os.Mkdir("folder", 0o700))
	must(t, os.Symlink("pipe", "link"))
	for name, kind := range map[string]string{"pipe": "pipe", "link": "pipe", "socket": "socket", "device": "device", "folder": "folder"} {
		_, err := content.ReadFile(name, "packages/a/"+name, content.MaxText)
		if errs.CodeOf(err) != errs.InvalidArgument || !strings.HasPrefix(errs.Text(err), "packages/a/"+name+" is a "+kind) {
			t.Errorf("%s: %v", name, err)
		}
		info, serr := os.Stat(name)
		must(t, serr)
		if again := content.Regular(info.Mode(), "packages/a/"+name); again == nil || again.Error() != err.Error() {
			t.Errorf("%s by its mode: %v", name, again)
		}
	}
	if err := content.Regular(fs.FileMode(0o644), "f"); err != nil {
		t.Error(err)
	}
}
