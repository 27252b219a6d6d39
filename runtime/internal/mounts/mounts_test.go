package mounts

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const sample = `22 1 0:20 / / rw,relatime - ext4 /dev/root rw
30 22 0:25 / /s rw - tmpfs tmpfs rw
31 30 0:26 /usr /s/usr ro,nosuid,nodev,noexec,noatime shared:5 master:3 - ext4 /dev/root rw
33 31 0:27 / /s/usr/share rw,nodiratime - tmpfs tmpfs rw
32 30 0:26 /x /s/a\040b\134c rw - ext4 /dev/root rw
34 22 0:28 / /srv rw - tmpfs tmpfs rw
`

func TestParse(t *testing.T) {
	got, err := parseMounts(strings.NewReader(sample), "/s")
	if err != nil {
		t.Fatal(err)
	}
	want := []mountPoint{
		{"/s", 0},
		{`/s/a b\c`, 0},
		{"/s/usr", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME},
		{"/s/usr/share", unix.MS_NODIRATIME},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("mount %d: %v, want %v", i, got[i], want[i])
		}
	}
	if all, err := parseMounts(strings.NewReader(sample), "/"); err != nil || len(all) != 6 {
		t.Errorf("below /: %v, %v", all, err)
	}
	if none, err := parseMounts(strings.NewReader(sample), "/s/us"); err != nil || len(none) != 0 {
		t.Errorf("a prefix of a name is no parent: %v, %v", none, err)
	}
	if _, err := parseMounts(strings.NewReader("1 2 3\n"), "/"); err == nil {
		t.Error("a short line was accepted")
	}
}

func TestTheKernelsOwnList(t *testing.T) {
	all, err := mountsAt("/")
	if err != nil || len(all) == 0 || all[0].point != "/" {
		t.Errorf("%v, %v", all, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample, "/s")
	f.Add(`1 2 3:4 / /\9\04 ro`, "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		got, err := parseMounts(strings.NewReader(text), path)
		if err != nil {
			return
		}
		for _, m := range got {
			if m.point != path && !strings.HasPrefix(m.point, strings.TrimSuffix(path, "/")+"/") {
				t.Errorf("%q is not below %q", m.point, path)
			}
		}
	})
}
