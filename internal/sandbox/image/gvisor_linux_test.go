package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/gvisor/imagecheck"
	"brood/internal/sandbox/driver/gvisor/launch"
)

// patience bounds any one wait; nothing asserts how long things take.
const patience = 8 * time.Minute

// world is a runtime of our own and the images of one home.
type world struct {
	t      *testing.T
	ctx    context.Context
	store  *Store
	client *launch.Client
	dir    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	h, err := home.Open(t.TempDir())
	must(t, err)
	_, runtime, err := payload.InstallRuntime(h)
	if errs.Is(err, errs.Unsupported) {
		t.Skipf("SKIPPED: %v", err)
	}
	must(t, err)
	inside := filepath.Join(t.TempDir(), "inside")
	build := exec.Command("go", "build", "-o", inside, "./testdata/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(inside)
	must(t, err)
	s, err := Open(h, GuestBinary{Bytes: b, Digest: digest.Of(b)})
	must(t, err)
	w := &world{t: t, ctx: ctx, store: s, dir: filepath.Join(h.Run(), "runtime")}
	log, err := os.Create(filepath.Join(h.Logs(), "launcher"))
	must(t, err)
	defer func() { _ = log.Close() }()
	if err := launch.StartHolder(ctx, launch.StartParams{RuntimePath: runtime, Dir: w.dir, Log: log}); err != nil {
		t.Fatalf("the runtime does not start: %v", err)
	}
	w.client, err = launch.Dial(ctx, w.dir)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(w.client.Stop(ctx, true), w.client.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// inside is a sandbox that answers questions.
type inside struct {
	t *testing.T
	f *os.File
	r *bufio.Reader
}

func (w *world) boot(id string, root sandbox.Root, imageDir string) *inside {
	w.t.Helper()
	c := launch.Create{ID: id, Root: launch.Root{EROFS: root.EROFS}, Argv: []string{GuestPath}, Hostname: id}
	if root.Host != nil {
		host := &launch.HostRoot{Dir: root.Host.Dir}
		for _, b := range root.Host.Binds {
			host.Binds = append(host.Binds, launch.Bind(b))
		}
		c.Root.Host = host
	}
	f, err := w.client.Create(w.ctx, c)
	must(w.t, err)
	w.t.Cleanup(func() { _ = f.Close() })
	if imageDir == "" {
		must(w.t, w.client.Start(w.ctx, id))
	} else {
		must(w.t, w.client.Restore(w.ctx, launch.Restore{ID: id, ImageDir: imageDir}))
	}
	return &inside{t: w.t, f: f, r: bufio.NewReader(f)}
}

func (i *inside) ask(format string, args ...any) string {
	i.t.Helper()
	must(i.t, i.f.SetDeadline(time.Now().Add(patience)))
	_, err := fmt.Fprintf(i.f, format+"\n", args...)
	must(i.t, err)
	line, err := i.r.ReadString('\n')
	must(i.t, err)
	answer, err := strconv.Unquote(strings.TrimSpace(line))
	must(i.t, err)
	return answer
}

func (i *inside) expect(want, format string, args ...any) {
	i.t.Helper()
	if got := i.ask(format, args...); got != want {
		again := i.ask(format, args...) // tells a wrong file from a wrong moment
		i.t.Errorf(format+" = %q, then %q, want %q", append(args, got, again, want)...)
	}
}

func sumOf(b []byte) string { return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)) }

// TestGVisorRunsFolderImages boots what Resolve makes of a folder and looks
// at it from inside, before and after a checkpoint.
func TestGVisorRunsFolderImages(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	large := bytes.Repeat([]byte("0123456789abcdef"), 300_001)
	files := map[string]string{"etc/passwd": "root:x:0:0:root:/:/", "large": string(large), "empty": ""}
	for i := range 2000 {
		files[fmt.Sprintf("many/%d-%s", i, strings.Repeat("n", i%150))] = strconv.Itoa(i)
	}
	for _, size := range []int{1, 4095, 4096, 4097} {
		files[fmt.Sprintf("size-%d", size)] = strings.Repeat("s", size)
	}
	write(t, dir, files)
	must(t, os.Symlink("large", filepath.Join(dir, "link")))
	must(t, os.Symlink("/"+strings.Repeat("t", 4090), filepath.Join(dir, "longlink")))
	must(t, os.Link(filepath.Join(dir, "size-1"), filepath.Join(dir, "hard")))
	must(t, os.Chmod(filepath.Join(dir, "size-1"), 0o640))
	must(t, os.Chtimes(filepath.Join(dir, "size-1"), time.Unix(1e9, 0), time.Unix(1e9, 0)))
	img, err := w.store.Resolve(w.ctx, dir, Options{})
	must(t, err)
	in := w.boot("source", img.Root, "")
	look := func(in *inside) {
		t.Helper()
		for name, content := range files {
			if strings.HasPrefix(name, "many/") && !strings.HasPrefix(name, "many/199") {
				continue
			}
			in.expect(sumOf([]byte(content)), "read /%s", name)
			if content != "" {
				in.expect(sumOf([]byte(content)), "mmap /%s", name)
			}
		}
		in.expect("2000", "list /many")
		in.expect("large", "link /link")
		in.expect("/"+strings.Repeat("t", 4090), "link /longlink")
		in.expect("100640 0:0 links 2 mtime 1000000000", "stat /hard")
		in.expect("true", "same /hard /size-1")
		in.expect("ran directly", "exec %s", GuestPath)
	}
	look(in)
	in.expect("written", "write /large")
	in.expect("written", "write /new")
	image := t.TempDir()
	must(t, w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: "source", Dir: image}))
	must(t, imagecheck.Check(image))
	cutsAreFound(t, image)
	fork := w.boot("fork", img.Root, image)
	fork.expect(sumOf([]byte("written")), "read /new")
	fork.expect(sumOf([]byte("written")), "read /large")
	delete(files, "large")
	look(fork)
	must(t, w.client.Destroy(w.ctx, "source"))
	must(t, w.client.Destroy(w.ctx, "fork"))
}

// cutsAreFound holds imagecheck to what gVisor really writes.
func cutsAreFound(t *testing.T, image string) {
	t.Helper()
	for _, name := range []string{"checkpoint.img", "pages_meta.img", "pages.img"} {
		dir := t.TempDir()
		must(t, os.CopyFS(dir, os.DirFS(image)))
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		for _, n := range []int64{st.Size() - 1, st.Size() - 4096, st.Size() / 2, st.Size() / 3, 100, 0} {
			if n < 0 {
				continue
			}
			must(t, os.Truncate(filepath.Join(dir, name), n))
			if err := imagecheck.Check(dir); !errs.Is(err, errs.DataLoss) {
				t.Errorf("%s cut to %d of %d: %v", name, n, st.Size(), err)
			}
		}
	}
}

// TestGVisorRunsTheHostImage boots this machine's own root.
func TestGVisorRunsTheHostImage(t *testing.T) {
	w := newWorld(t)
	shared := t.TempDir()
	write(t, shared, map[string]string{"f": "from outside"})
	img, err := w.store.Resolve(w.ctx, "host", Options{Mounts: []sandbox.Bind{{Source: shared, Target: "/mnt/shared", ReadOnly: true}}})
	must(t, err)
	in := w.boot("source", img.Root, "")
	passwd, err := os.ReadFile("/etc/passwd")
	must(t, err)
	in.expect(sumOf(passwd), "read /etc/passwd")
	in.expect("written", "write /etc/passwd")
	in.expect("written", "write /usr/new-file")
	in.expect(sumOf([]byte("from outside")), "read /mnt/shared/f")
	in.expect("ran directly", "exec %s", GuestPath)
	if got := in.ask("exec /bin/echo"); got != "directly\n" {
		t.Errorf("a program of this machine said %q", got)
	}
	for _, p := range []string{"/etc/shadow", "/root/.bashrc", "/home/x"} {
		if got := in.ask("read %s", p); !strings.Contains(got, "no such file") {
			t.Errorf("read %s = %s", p, got)
		}
	}
	must(t, w.client.Destroy(w.ctx, "source"))
	if b, err := os.ReadFile("/etc/passwd"); err != nil || !bytes.Equal(b, passwd) {
		t.Fatalf("this machine's file was written: %v", err)
	}
	if _, err := os.Lstat("/usr/new-file"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("this machine got a file: %v", err)
	}
	if got := skeleton(t, img)["etc/passwd"]; got != string(passwd) {
		t.Error("the skeleton was written")
	}
}
