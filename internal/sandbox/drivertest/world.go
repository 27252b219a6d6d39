package drivertest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

// limit bounds every wait. It is no measure: what is right never gets near it.
const limit = 2 * time.Minute

// The ports and files of the probe.
const (
	pollPort  = 4001
	blockPort = 4002
	countFile = "/tmp/probe-count"
)

// world is a subtest's driver and what the test made.
type world struct {
	Subject
	t   *testing.T
	ctx context.Context
	dir string
}

func newWorld(t *testing.T, s Subject) *world {
	ctx, cancel := context.WithTimeout(context.Background(), 4*limit)
	w := &world{Subject: s, t: t, ctx: ctx, dir: t.TempDir()}
	t.Cleanup(func() {
		defer cancel()
		w.clear()
	})
	return w
}

// clear removes what a subtest left running, looks that nothing is left, and
// lets go of the driver.
func (w *world) clear() {
	all, err := w.Driver.List(w.ctx)
	if err != nil {
		w.t.Errorf("list: %v", err)
	}
	for _, l := range all {
		if err := w.Driver.Destroy(w.ctx, l.ID); err != nil {
			w.t.Errorf("destroy %s: %v", l.ID, err)
		}
	}
	if left := w.ids(); len(left) != 0 {
		w.t.Errorf("%v are left after all were destroyed", left)
	}
	if err := w.Driver.Close(w.ctx); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ids returns the sandboxes that there are.
func (w *world) ids() []id.Sandbox {
	w.t.Helper()
	all, err := w.Driver.List(w.ctx)
	w.check(err)
	var ids []id.Sandbox
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return ids
}

func (w *world) has(sb id.Sandbox) bool {
	w.t.Helper()
	return slices.Contains(w.ids(), sb)
}

// box is a sandbox as its host has it.
type box struct {
	w     *world
	id    id.Sandbox
	magic string
	c     *guest.Client
	ch    sandbox.Channel // below c
}

// logNames are the two files of the main command's output.
var logNames = [2]string{"output-0", "output-1"}

// file is where a sandbox's file lies on the host.
func (w *world) file(sb id.Sandbox, name string) string {
	return filepath.Join(w.dir, string(sb)+"-"+name+".log")
}

// files are a sandbox's files on the host.
func (w *world) files(sb id.Sandbox) (sandbox.Files, func(), error) {
	var all [3]*os.File
	for i, name := range []string{"guest", logNames[0], logNames[1]} {
		f, err := os.OpenFile(w.file(sb, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return sandbox.Files{}, nil, err
		}
		all[i] = f
	}
	return sandbox.Files{Diagnostics: all[0], Log: [2]*os.File{all[1], all[2]}}, func() {
		for _, f := range all {
			if err := f.Close(); err != nil {
				w.t.Error(err)
			}
		}
	}, nil
}

// tryStart starts a sandbox and connects to it.
func (w *world) tryStart(ctx context.Context, d sandbox.Driver, sb id.Sandbox) (*box, error) {
	files, done, err := w.files(sb)
	if err != nil {
		return nil, err
	}
	defer done()
	magic := id.Random(proto.MagicSize)
	ch, err := d.Start(ctx, sandbox.StartParams{ID: sb, Root: w.Root, Hostname: string(sb), Magic: magic, Files: files})
	if err != nil {
		return nil, err
	}
	return w.connect(sb, magic, ch)
}

func (w *world) connect(sb id.Sandbox, magic string, ch sandbox.Channel) (*box, error) {
	secret, err := hex.DecodeString(magic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	c, err := guest.Connect(ctx, ch, secret)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w\n%s", sb, err, w.diagnostics(sb))
	}
	w.t.Cleanup(func() { _ = c.Close() }) // may have ended with its sandbox
	return &box{w: w, id: sb, magic: magic, c: c, ch: ch}, nil
}

func (w *world) diagnostics(sb id.Sandbox) string {
	b, err := os.ReadFile(w.file(sb, "guest"))
	if err != nil {
		return err.Error()
	}
	return "the guest said: " + string(b)
}

// start starts a sandbox with an identity and, unless there is none, a main
// command of the probe.
func (w *world) start(sb id.Sandbox, words ...string) *box {
	w.t.Helper()
	b, err := w.tryStart(w.ctx, w.Driver, sb)
	w.check(err)
	b.identify()
	if len(words) > 0 {
		_, err := b.c.Start(w.ctx, guest.StartArgs{Command: w.command(words...)})
		w.check(err)
	}
	if len(words) > 0 && words[0] == "state" {
		w.eventually("the probe answers", func() bool {
			_, err := b.tryAsk(pollPort, "count")
			return err == nil
		})
	}
	return b
}

func (w *world) command(words ...string) guest.Command {
	return guest.Command{Argv: append([]string{w.Probe}, words...)}
}

// image is a capture.
type image struct {
	dir   string
	magic string
	count int64 // of the probe while it was frozen
}

// capture saves a sandbox at one instant; it goes on.
func (b *box) capture() image {
	b.w.t.Helper()
	dir, err := os.MkdirTemp(b.w.dir, "image-")
	b.w.check(err)
	im := image{dir: dir, magic: b.magic}
	b.freeze()
	im.count = b.frozenCount()
	b.w.check(b.w.Driver.Capture(b.w.ctx, b.id, dir))
	if now := b.frozenCount(); now != im.count {
		b.w.t.Errorf("%s counted from %d to %d while it was captured", b.id, im.count, now)
	}
	b.thaw()
	return im
}

func (b *box) freeze() {
	b.w.t.Helper()
	_, err := b.c.Freeze(b.w.ctx, guest.FreezeArgs{Capture: true})
	b.w.check(err)
}

func (b *box) thaw() {
	b.w.t.Helper()
	b.w.check(b.c.Thaw(b.w.ctx))
}

// frozenCount is the count, looked at from outside the probe: it works while
// the probe is stopped. Without a probe it is 0.
func (b *box) frozenCount() int64 {
	b.w.t.Helper()
	st, err := b.c.Stat(b.w.ctx, guest.StatArgs{Path: countFile})
	b.w.check(err)
	return st.Size
}

// tryRestore makes a fork, still frozen.
func (w *world) tryRestore(ctx context.Context, d sandbox.Driver, sb id.Sandbox, im image) (*box, error) {
	files, done, err := w.files(sb)
	if err != nil {
		return nil, err
	}
	defer done()
	ch, err := d.Restore(ctx, sandbox.RestoreParams{
		ID: sb, Dir: im.dir, Runtime: d.Runtime(), Root: w.Root, Hostname: string(sb), Magic: im.magic, Files: files,
	})
	if err != nil {
		return nil, err
	}
	return w.connect(sb, im.magic, ch)
}

// fork makes a fork, looks that it goes on from the very state, and lets it.
func (w *world) fork(sb id.Sandbox, im image) *box {
	w.t.Helper()
	b, err := w.tryRestore(w.ctx, w.Driver, sb, im)
	w.check(err)
	b.goOn(im)
	return b
}

// goOn hands a restored fork over.
func (b *box) goOn(im image) {
	b.w.t.Helper()
	if !b.c.Hello().Frozen {
		b.w.t.Errorf("%s was not frozen when it was restored", b.id)
	}
	if n := b.frozenCount(); n != im.count {
		b.w.t.Errorf("%s goes on from %d, the capture was made at %d", b.id, n, im.count)
	}
	b.identify()
	if n := b.frozenCount(); n != im.count {
		b.w.t.Errorf("%s counted to %d before it was let go", b.id, n)
	}
	b.thaw()
}

// identify gives a sandbox the identity of its id.
func (b *box) identify() {
	b.w.t.Helper()
	got, err := b.c.Identity(b.w.ctx, guest.IdentityArgs{Name: string(b.id), Hostname: string(b.id), UUID: "uuid-" + string(b.id), Token: "secret"})
	b.w.check(err)
	if got.Hostname != string(b.id) {
		b.w.t.Errorf("%s says it is %s", b.id, got.Hostname)
	}
}

// tryAsk asks the probe by a fresh connection.
func (b *box) tryAsk(port uint16, question string) (string, error) {
	conn, err := b.c.Dial(b.w.ctx, port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, question); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	line = strings.TrimSpace(line)
	if text, failed := strings.CutPrefix(line, "error: "); failed {
		err = errors.Join(err, errors.New(text))
	}
	return line, err
}

func (b *box) ask(words ...string) string {
	b.w.t.Helper()
	answer, err := b.tryAsk(pollPort, strings.Join(words, " "))
	if err != nil {
		b.w.t.Fatalf("ask %s %q: %v", b.id, words, err)
	}
	return answer
}

// want asks and compares.
func (b *box) want(answer string, words ...string) {
	b.w.t.Helper()
	if got := b.ask(words...); got != answer {
		b.w.t.Errorf("%s answers %q with %q, not %q", b.id, words, got, answer)
	}
}

// count is the number in the probe's memory.
func (b *box) count() int64 {
	b.w.t.Helper()
	n, err := strconv.ParseInt(b.ask("count"), 10, 64)
	b.w.check(err)
	return n
}

// counting waits until the probe counted on from a number.
func (b *box) counting(from int64) {
	b.w.t.Helper()
	b.w.eventually(string(b.id)+" counts", func() bool { return b.count() > from })
}

// exec starts a program of the probe beside the main command and stays
// attached.
func (b *box) exec(a guest.ExecArgs, words ...string) *guest.Attachment {
	b.w.t.Helper()
	a.Command = b.w.command(words...)
	x, err := b.c.Exec(b.w.ctx, a)
	if err != nil {
		b.w.t.Fatalf("exec %q in %s: %v", words, b.id, err)
	}
	return x
}

// read returns a file's content, "" when there is none.
func (b *box) read(path string) string {
	b.w.t.Helper()
	var out strings.Builder
	st, err := b.c.Stat(b.w.ctx, guest.StatArgs{Path: path})
	b.w.check(err)
	if !st.Exists {
		return ""
	}
	_, err = b.c.Get(b.w.ctx, guest.GetArgs{Path: path, Name: "file"}, &out)
	b.w.check(err)
	text, err := onlyFile(strings.NewReader(out.String()))
	b.w.check(err)
	return text
}

// said is the main command's output, from the files on the host.
func (b *box) said() string {
	b.w.t.Helper()
	var paths [2]string
	for i := range paths {
		paths[i] = b.w.file(b.id, logNames[i])
	}
	r, err := logs.Open(paths)
	b.w.check(err)
	defer r.Close()
	var text strings.Builder
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		b.w.check(err)
		text.Write(e.Data)
	}
}

// growing waits until the number at the beginning of a file has grown, and
// returns the file's other words.
func (b *box) growing(path string) []string {
	b.w.t.Helper()
	first := b.numbered(path)
	var words []string
	b.w.eventually(fmt.Sprintf("%s of %s grows", path, b.id), func() bool {
		words = strings.Fields(b.read(path))
		return len(words) > 0 && number(words[0]) > first && first > 0
	})
	return words[1:]
}

func (b *box) numbered(path string) int {
	var n int
	b.w.eventually(fmt.Sprintf("%s of %s has a number", path, b.id), func() bool {
		words := strings.Fields(b.read(path))
		if len(words) > 0 {
			n = number(words[0])
		}
		return n > 0
	})
	return n
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// runs reports whether a process of the probe with this word runs.
func (b *box) runs(word string) bool {
	b.w.t.Helper()
	all, err := b.c.Ps(b.w.ctx)
	b.w.check(err)
	return slices.ContainsFunc(all, func(p guest.Process) bool {
		return len(p.Argv) > 1 && p.Argv[1] == word && p.State != "Z" && p.State != "X"
	})
}

// eventually waits until ok.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timer.C:
			w.t.Fatalf("did not come to be: %s", what)
		}
	}
}
