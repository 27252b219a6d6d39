//go:build linux

package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/sandbox"
)

// hostStore is a store on a machine whose root is a folder.
func hostStore(t testing.TB) (*Store, string) {
	t.Helper()
	s := newStore(t)
	root := t.TempDir()
	write(t, root, map[string]string{
		"usr/bin/python3": "ELFBYTES", "opt/tool": "x", "etc/passwd": "root:x:0:0", "etc/shadow": "hash", "etc/gshadow": "hash",
		"etc/sudoers": "s", "etc/ssh/ssh_host_rsa_key": "key", "etc/ssl/certs/ca.pem": "ca", "etc/ssl/private/server.key": "key",
		"etc/ssl/certs/own.key": "key", "etc/ssl/certs/private/x.pem": "key", "etc/gitconfig": "token", "etc/npmrc": "token", "etc/environment": "TOKEN=1",
		"etc/java-17/net.properties": "p", "etc/java-17/jmxremote.password": "pw", "etc/python3.11/sitecustomize.py": "s", "etc/profile.d/x.sh": "x",
		"etc/profile.d/hidden.sh": "for root only", "etc/machine-id": strings.Repeat("a", 32) + "\n", "etc/hostname": "real-name", "etc/hosts": "10.0.0.1 real",
		"home/me/.ssh/id_rsa": "key", "root/.bashrc": "x", "var/lib/secret": "x",
	})
	must(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	must(t, os.Symlink("/usr/share/zoneinfo/UTC", filepath.Join(root, "etc/localtime")))
	must(t, os.Chmod(filepath.Join(root, "etc/profile.d/hidden.sh"), 0o640))
	s.mach = machine{root: root, ids: thisMachine.ids}
	return s, root
}

func skeleton(t testing.TB, img Image) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(img.Root.Host.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(img.Root.Host.Dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			got[rel], err = os.Readlink(p)
		case fi.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(p)
			got[rel] = string(b)
		default:
			got[rel] = fi.Mode().String()
		}
		return err
	})
	must(t, err)
	return got
}

func TestHostShowsTheListAndNothingElse(t *testing.T) {
	s, root := hostStore(t)
	img, err := s.Resolve(t.Context(), "host", Options{})
	must(t, err)
	got := skeleton(t, img)
	for p, want := range map[string]string{
		"bin": "usr/bin", "usr": "drwxr-xr-x", "etc/passwd": "root:x:0:0", "etc/localtime": "/usr/share/zoneinfo/UTC", "etc/ssl/certs/ca.pem": "ca",
		"etc/java-17/net.properties": "p", "etc/python3.11/sitecustomize.py": "s", "etc/profile.d/x.sh": "x",
		"etc/hostname": "sandbox\n", "etc/machine-id": "", "tmp": "dtrwxrwxrwx", "root": "drwx------", "proc": "dr-xr-xr-x", "dev/shm": "dtrwxrwxrwx",
		"var/tmp": "dtrwxrwxrwx", "run": "drwxr-xr-x", ".brood/bin/brood-guest": string(testGuest.Bytes), ".": "drwxr-xr-x",
	} {
		if got[p] != want {
			t.Errorf("%s = %.60q, want %.60q", p, got[p], want)
		}
	}
	for p, content := range got {
		for _, secret := range []string{"hash", "key", "token", "TOKEN", "pw", "root only", "real", "ELFBYTES"} {
			if strings.Contains(content, secret) && !strings.HasPrefix(p, ".brood") {
				t.Errorf("%s holds %q", p, content)
			}
		}
	}
	binds := img.Root.Host.Binds
	if len(binds) != 2 || binds[0] != (sandbox.Bind{Source: filepath.Join(root, "usr"), Target: "/usr", ReadOnly: true}) || binds[1].Target != "/opt" || !binds[1].ReadOnly {
		t.Errorf("binds = %+v", binds)
	}
	if p := HostPath(img.Root.Host, "/usr/bin/python3"); p != filepath.Join(root, "usr/bin/python3") {
		t.Errorf("HostPath = %s", p)
	}
	if p := HostPath(img.Root.Host, "etc/passwd"); p != filepath.Join(img.Root.Host.Dir, "etc/passwd") {
		t.Errorf("HostPath = %s", p)
	}
}

func TestHostDigestFollowsWhatIsShown(t *testing.T) {
	s, root := hostStore(t)
	resolve := func(mounts ...sandbox.Bind) digest.Digest {
		img, err := s.Resolve(t.Context(), "", Options{Mounts: mounts})
		must(t, err)
		return img.Root.Digest
	}
	first := resolve()
	write(t, root, map[string]string{"etc/shadow": "another hash", "usr/bin/new": "x", "home/me/x": "y"})
	if resolve() != first {
		t.Error("what is not copied changed the digest")
	}
	src := t.TempDir()
	seen := map[digest.Digest]string{first: "plain"}
	differs := func(what string, d digest.Digest) {
		if other, dup := seen[d]; dup {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	differs("mount", resolve(sandbox.Bind{Source: src, Target: "/mnt/a"}))
	differs("mount elsewhere", resolve(sandbox.Bind{Source: src, Target: "/mnt/b"}))
	differs("read-only mount", resolve(sandbox.Bind{Source: src, Target: "/mnt/a", ReadOnly: true}))
	write(t, root, map[string]string{"etc/passwd": "root:x:0:0\nme:x:1:1"})
	differs("another passwd", resolve())
	guest := GuestBinary{Bytes: []byte("newer guest")}
	guest.Digest = digest.Of(guest.Bytes)
	s.guest = guest
	differs("another guest program", resolve())
	if img, err := s.Get(first); err != nil || img.Root.Host == nil {
		t.Errorf("the first skeleton must stay for its checkpoints: %v", err)
	}
}

func TestDamagedSkeletonIsMadeAgain(t *testing.T) {
	s, _ := hostStore(t)
	img, err := s.Resolve(t.Context(), "host", Options{})
	must(t, err)
	must(t, os.Truncate(filepath.Join(img.Root.Host.Dir, "etc/passwd"), 0))
	later, err := Open(s.home, testGuest) // after the power loss that cut it
	must(t, err)
	later.mach = s.mach
	again, err := later.Resolve(t.Context(), "host", Options{})
	must(t, err)
	if got := skeleton(t, again)["etc/passwd"]; got != "root:x:0:0" || again.Root.Digest != img.Root.Digest {
		t.Errorf("passwd = %q", got)
	}
	onlyImages(t, s, 1)
}

func TestMounts(t *testing.T) {
	s, root := hostStore(t)
	src := t.TempDir()
	write(t, src, map[string]string{"f": "x"})
	f := filepath.Join(src, "f")
	for name, c := range map[string]struct {
		mounts []sandbox.Bind
		want   errs.Code
	}{
		"folder":          {[]sandbox.Bind{{Source: src, Target: "/data/deep"}}, errs.OK},
		"file":            {[]sandbox.Bind{{Source: f, Target: "/etc/extra.conf"}}, errs.OK},
		"over a copy":     {[]sandbox.Bind{{Source: f, Target: "/etc/passwd"}}, errs.OK},
		"below a mount":   {[]sandbox.Bind{{Source: f, Target: "/a/f"}, {Source: src, Target: "/a"}}, errs.OK},
		"onto usr":        {[]sandbox.Bind{{Source: f, Target: "/usr/bin/python3"}}, errs.OK},
		"not there":       {[]sandbox.Bind{{Source: f, Target: "/usr/bin/none"}}, errs.InvalidArgument},
		"through symlink": {[]sandbox.Bind{{Source: f, Target: "/bin/x"}}, errs.InvalidArgument},
		"file on folder":  {[]sandbox.Bind{{Source: f, Target: "/tmp"}}, errs.InvalidArgument},
		"root":            {[]sandbox.Bind{{Source: src, Target: "/"}}, errs.InvalidArgument},
		"proc":            {[]sandbox.Bind{{Source: src, Target: "/proc/x"}}, errs.InvalidArgument},
		"ours":            {[]sandbox.Bind{{Source: src, Target: "/.brood/bin"}}, errs.InvalidArgument},
		"unclean":         {[]sandbox.Bind{{Source: src, Target: "/a/../b"}}, errs.InvalidArgument},
		"twice":           {[]sandbox.Bind{{Source: src, Target: "/a"}, {Source: root, Target: "/a"}}, errs.InvalidArgument},
		"no source":       {[]sandbox.Bind{{Source: filepath.Join(src, "none"), Target: "/a"}}, errs.NotFound},
		"brood's home":    {[]sandbox.Bind{{Source: filepath.Dir(s.home.Dir()), Target: "/a"}}, errs.PermissionDenied},
		"in brood's home": {[]sandbox.Bind{{Source: s.home.Run(), Target: "/a"}}, errs.PermissionDenied},
	} {
		img, err := s.Resolve(t.Context(), "host", Options{Mounts: c.mounts})
		if errs.CodeOf(err) != c.want {
			t.Errorf("%s: %v: %v", name, errs.CodeOf(err), err)
			continue
		}
		if err != nil {
			continue
		}
		for _, m := range c.mounts {
			at, err := os.Lstat(filepath.Join(img.Root.Host.Dir, m.Target))
			if name == "onto usr" || name == "below a mount" && m.Target == "/a/f" {
				continue // its place is in what is mounted
			}
			if from, e := os.Stat(m.Source); err != nil || e != nil || at.IsDir() != from.IsDir() {
				t.Errorf("%s: no mount point: %v %v", name, err, e)
			}
		}
	}
	if _, err := s.Resolve(t.Context(), src, Options{Mounts: []sandbox.Bind{{Source: src, Target: "/a"}}}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("mounts with a folder image: %v", err)
	}
}

func TestHomeInsideAShownFolderIsRefused(t *testing.T) {
	s, root := hostStore(t)
	h, err := home.Open(filepath.Join(root, "opt/brood"))
	must(t, err)
	inside, err := Open(h, testGuest)
	must(t, err)
	inside.mach = s.mach
	if _, err := inside.Resolve(t.Context(), "host", Options{}); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("err = %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	s, root := hostStore(t)
	a, err := s.Fingerprint()
	must(t, err)
	other, _ := hostStore(t)
	if b, err := other.Fingerprint(); err != nil || a != b {
		t.Errorf("two homes of one machine: %s and %s, %v", a, b, err)
	}
	write(t, root, map[string]string{"etc/machine-id": strings.Repeat("b", 32)})
	if b, err := s.Fingerprint(); err != nil || a == b {
		t.Errorf("another machine has the same fingerprint (%v)", err)
	}
	must(t, os.Remove(filepath.Join(root, "etc/machine-id")))
	c, err := s.Fingerprint()
	d, err2 := s.Fingerprint()
	if errors.Join(err, err2) != nil || c != d || c == a {
		t.Errorf("without an identity: %s and %s", c, d)
	}
}

func TestThisMachinesRoot(t *testing.T) {
	s := newStore(t)
	img, err := s.Resolve(t.Context(), "host", Options{})
	must(t, err)
	if len(img.Root.Host.Binds) == 0 {
		t.Error("nothing is shown")
	}
	for p := range skeleton(t, img) {
		for _, bad := range []string{"shadow", "ssh/", "sudoers", "ssl/private", "pam.d"} {
			if strings.Contains(p, bad) {
				t.Errorf("%s is copied", p)
			}
		}
	}
	again, err := s.Resolve(t.Context(), "host", Options{})
	must(t, err)
	if again.Root.Digest != img.Root.Digest {
		t.Error("an unchanged machine has another digest")
	}
}

func BenchmarkResolveHostAgain(b *testing.B) {
	s := newStore(b)
	if _, err := s.Resolve(b.Context(), "host", Options{}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), "host", Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	for _, s := range []string{"/a:/b", "/a:/b:ro", "/a", "a:b", "/a:/b:rw", "::", "/a:/../b", "/a:/b:/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMount(s)
		if err != nil {
			if errs.CodeOf(err) != errs.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) || filepath.Clean(m.Target) != m.Target {
			t.Fatalf("%q gave %+v", s, m)
		}
	})
}
