package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob/disk"
)

// tree makes files, and folders of the names that end in "/".
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, text, _ := strings.Cut(name, "=")
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// list names everything below dir.
func list(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func TestFoldersOfOthersAreRefusedAndLeft(t *testing.T) {
	for _, dir := range []string{
		tree(t, "passwd", "tmp/w-123"),
		tree(t, "tmp/w-123"),
		tree(t, "cas/", "ac/", "tmp/", "lock", "notes"),
		tree(t, "cas", "ac/"),
		tree(t, "lock"),
		tree(t, "cache.json={}", "tmp/w-123"),
		tree(t, `cache.json={"kind":"brood cache","format":99}`),
		filepath.Join(tree(t, "file"), "file"),
	} {
		before := list(t, dir)
		s, err := disk.Open(dir, 0)
		if err == nil {
			s.Close()
		}
		if !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("it took a folder with\n%s\n%v", before, err)
		}
		if after := list(t, dir); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	}
}

func TestFoldersThatAreTaken(t *testing.T) {
	for _, dir := range []string{
		filepath.Join(t.TempDir(), "new", "deep"),
		tree(t),
		tree(t, "lost+found/"),
		tree(t, ".cache.json-1"),
		tree(t, "cas/", "ac/", "tmp/", "lock"), // from before there were markers
		tree(t, "cas/", "ac/"),
	} {
		open(t, dir, 0).Close()
		if _, err := os.Stat(filepath.Join(dir, "cache.json")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir, 0).Close() // it is marked
	}
}

func TestForeignFilesInItAreLeft(t *testing.T) {
	foreign := []string{"cas/photo.jpg", "cas/ab/notes", "ac/x", "tmp/mine", "tmp/w-half", "tmp/w-1/deep"}
	dir := tree(t, append([]string{"tmp/w-123", "cas/", "ac/"}, foreign...)...)
	s := open(t, dir, 1) // so small that whatever counts is evicted
	if bytes, n := s.Size(); bytes != 0 || n != 0 {
		t.Errorf("%d bytes in %d files are counted", bytes, n)
	}
	s.Close()
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tmp/w-123")); err == nil {
		t.Error("what was half written is left")
	}
}
