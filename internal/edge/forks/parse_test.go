package forks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func TestLocations(t *testing.T) {
	for s, want := range map[string]place{
		"src:/work":       {"src", "/work"},
		"local:src:/work": {"local:src", "/work"},
		"src:/a:/b":       {"src", "/a:/b"},
		"src:rel":         {"src", "rel"},
		"file":            {path: "file"},
		"-":               {path: "-"},
		"./a:b":           {path: "./a:b"},
		"../a:/b":         {path: "../a:/b"},
		"/abs:/b":         {path: "/abs:/b"},
		"dir/a:b":         {path: "dir/a:b"},
		"dir/a:/b":        {path: "dir/a:/b"},
	} {
		if got := location(s); got != want {
			t.Errorf("location(%q) = %+v, want %+v", s, got, want)
		}
	}
}

func TestImageRefs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("rootfs", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"a.tar", "rootfs/b.tar"} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", "/home/x")
	for ref, want := range map[string]string{
		"": "", "host": "host", "alpine": "alpine", "docker.io/library/alpine:3": "docker.io/library/alpine:3",
		"sha256:ab": "sha256:ab", "rootfs": "rootfs",
		"./rootfs": filepath.Join(dir, "rootfs"), "a.tar": filepath.Join(dir, "a.tar"), "rootfs/b.tar": filepath.Join(dir, "rootfs/b.tar"),
		"dir:rootfs": "dir:" + filepath.Join(dir, "rootfs"), "tar:a.tar": "tar:" + filepath.Join(dir, "a.tar"),
		"~/fs": "/home/x/fs", "/abs/../x": "/x",
	} {
		if got, err := imageRef(ref); err != nil || got != want {
			t.Errorf("imageRef(%q) = %q, %v, want %q", ref, got, err, want)
		}
	}
}

func TestGroups(t *testing.T) {
	f := &forkManyFlags{groups: []string{"base=3", "checkpoint:b=2:web", "odd=name=1"}, memory: "2G"}
	groups, err := f.sources(nil)
	if err != nil || len(groups) != 3 || f.options.MemoryMB != 2048 {
		t.Fatalf("%+v %d %v", groups, f.options.MemoryMB, err)
	}
	if g := groups[1]; g.Source != "checkpoint:b" || g.Count != 2 || g.NamePrefix != "web" {
		t.Errorf("%+v", g)
	}
	if g := groups[2]; g.Source != "odd=name" || g.Count != 1 {
		t.Errorf("%+v", g)
	}
}

// FuzzArguments: whatever is typed is read or refused as a bad argument.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"tcp:80", "http:api/x", "cmd:true", "/a:/b:ro", "K=V", "base=3:x", "=", ":", "http:", "a=99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(err error) {
			t.Helper()
			if err != nil && errs.CodeOf(err) != errs.InvalidArgument {
				t.Fatalf("%q: %v", s, err)
			}
		}
		for _, c := range []*createFlags{{waits: []string{s}}, {ports: []string{s}}, {services: []string{s}}, {memory: s}, {labels: []string{s}}, {mounts: []string{s}}} {
			req, err := c.request("", nil)
			check(err)
			for _, p := range req.GetCreate().GetWaitFor() {
				if p.GetPort() == 0 || p.GetPort() > 65535 {
					t.Fatalf("%q is port %d", s, p.GetPort())
				}
			}
		}
		groups, err := (&forkManyFlags{groups: []string{s}}).sources(nil)
		check(err)
		if err == nil && (groups[0].Count == 0 || groups[0].Source == "") {
			t.Fatalf("%q is %+v", s, groups[0])
		}
		_, err = environment([]string{s})
		check(err)
		if l := location(s); l.sandbox != "" && l.sandbox+":"+l.path != s {
			t.Fatalf("%q is %+v", s, l)
		}
	})
}

func TestTimesForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d",
	} {
		if got := cli.Brief(d); got != want {
			t.Errorf("brief(%s) = %q, want %q", d, got, want)
		}
	}
	if got := ago(timestamppb.New(time.Now().Add(-3 * time.Hour))); got != "3h00m ago" {
		t.Error(got)
	}
	if cli.Took(999) != "999 ms" || cli.Took(1250) != "1.2 s" {
		t.Error(cli.Took(999), cli.Took(1250))
	}
}
