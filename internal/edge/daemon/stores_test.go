package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/driver/fake"
)

// withCheckpoint is a home with sandbox src and its checkpoints, where forks
// work.
func withCheckpoint(t *testing.T, dir, root string, w *fake.World, names ...string) (*client.Client, func() error) {
	t.Helper()
	c, stop := serve(t, dir, w)
	runtime := filepath.Join(dir, "runtimes", string(fake.DefaultRuntime), "brood-runtime")
	check(t, os.MkdirAll(filepath.Dir(runtime), 0o700))
	check(t, os.WriteFile(runtime, []byte("x"), 0o600))
	_, err := c.CreateSandbox(t.Context(), createIn(root, "src"), nil)
	check(t, err)
	for _, name := range names {
		_, err = c.CreateCheckpoint(t.Context(), "src", name, client.CheckpointOptions{})
		check(t, err)
	}
	return c, stop
}

// A checkpoint whose manifest is damaged is seen, refuses to be used, and can
// be removed and replaced.
func TestDamagedCheckpointIsNoDeadEnd(t *testing.T) {
	w, dir, ctx := newWorld(t), t.TempDir(), t.Context()
	_, stop := withCheckpoint(t, dir, folder(t), w, "base", "other")
	check(t, stop())
	for _, name := range []string{"base", "other"} {
		check(t, os.WriteFile(filepath.Join(dir, "checkpoints", name, "manifest.json"), []byte("{\n"), 0o600))
	}
	c, _ := serve(t, dir, w)
	list, err := c.ListCheckpoints(ctx, false)
	check(t, err)
	if len(list) != 2 || list[0].GetName() != "base" || !strings.Contains(list[0].GetDamaged(), "manifest is damaged") || list[0].GetSource() != "src" {
		t.Errorf("listed: %v", list)
	}
	refused := map[string]func() error{
		"rename": func() error { _, err := c.RenameCheckpoint(ctx, "base", "bb"); return err },
		"pin":    func() error { _, err := c.PinCheckpoint(ctx, "base"); return err },
		"fork":   func() error { _, err := c.Fork(ctx, "base", "f"); return err },
		"verify": func() error { _, err := c.VerifyCheckpoint(ctx, "base", nil); return err },
		"save":   func() error { _, err := c.CreateCheckpoint(ctx, "src", "base", client.CheckpointOptions{}); return err },
		"forks":  func() error { _, err := c.ForkMany(ctx, "base", 2, nil); return err },
	}
	for what, f := range refused {
		if err := f(); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "checkpoints rm base") {
			t.Errorf("%s: %v (code %s)", what, err, errs.CodeOf(err))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "checkpoints", "base")); err != nil {
		t.Error(err)
	}
	_, err = c.CreateCheckpoint(ctx, "src", "base", client.CheckpointOptions{Replace: true})
	check(t, err)
	_, err = c.Fork(ctx, "base", "f")
	check(t, err)
	_, err = c.DeleteCheckpoint(ctx, "other", false)
	check(t, err)
	if list, err = c.ListCheckpoints(ctx, true); err != nil || len(list) != 1 || list[0].GetDamaged() != "" {
		t.Errorf("in the end: %v, %v", list, err)
	}
}

// A fork without a name is given one, which says what it was made of.
func TestForkIsGivenAName(t *testing.T) {
	c, _ := withCheckpoint(t, t.TempDir(), folder(t), newWorld(t), "base")
	cp, err := c.ListCheckpoints(t.Context(), true)
	check(t, err)
	for source, prefix := range map[string]string{"base": "base-", "src": "src-", cp[0].GetDigest(): cp[0].GetDigest()[:12] + "-"} {
		seen := map[string]bool{}
		for range 2 {
			f, err := c.Fork(t.Context(), source, "")
			check(t, err)
			if name := f.GetSandbox().GetName(); !strings.HasPrefix(name, prefix) || seen[name] {
				t.Errorf("a fork of %s is called %q", source, name)
			} else {
				seen[name] = true
			}
		}
	}
}

// A damaged checkpoint of a batch goes when its forks have gone.
func TestDamagedTemporaryCheckpointGoes(t *testing.T) {
	w, dir, ctx := newWorld(t), t.TempDir(), t.Context()
	c, stop := withCheckpoint(t, dir, folder(t), w)
	_, err := c.Fork(ctx, "src", "f")
	check(t, err)
	list, err := c.ListCheckpoints(ctx, true)
	if check(t, err); len(list) != 1 {
		t.Fatalf("listed: %v", list)
	}
	check(t, stop())
	check(t, os.WriteFile(filepath.Join(dir, "checkpoints", list[0].GetName(), "manifest.json"), []byte("{"), 0o600))
	c, _ = serve(t, dir, w)
	if list, err = c.ListCheckpoints(ctx, true); err != nil || len(list) != 1 {
		t.Errorf("with a fork: %v, %v", list, err)
	}
	check(t, c.DeleteSandbox(ctx, "f"))
	if list, err = c.ListCheckpoints(ctx, true); err != nil || len(list) != 0 {
		t.Errorf("without: %v, %v", list, err)
	}
}

func TestVerifyNamesTheFileThatDiffers(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	c, _ := withCheckpoint(t, dir, folder(t), newWorld(t), "base")
	r, err := c.VerifyCheckpoint(ctx, "base", nil)
	check(t, err)
	info, err := c.GetCheckpoint(ctx, "base")
	check(t, err)
	if r.GetCheckpoint().GetName() != "base" || int(r.GetFiles()) != len(info.GetFiles()) || r.GetBytes() != info.GetCheckpoint().GetSizeBytes() {
		t.Errorf("%v", r)
	}
	file := info.GetFiles()[0].GetPath()
	path := filepath.Join(dir, "checkpoints", "base", "files", file)
	b, err := os.ReadFile(path)
	check(t, err)
	b[len(b)/2] ^= 1
	check(t, os.WriteFile(path, b, 0o600))
	if _, err = c.VerifyCheckpoint(ctx, "base", nil); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), file) {
		t.Errorf("a bit: %v", err)
	}
	b[len(b)/2] ^= 1
	check(t, os.WriteFile(path+"-elsewhere", b, 0o600))
	check(t, os.Remove(path))
	check(t, os.Symlink(path+"-elsewhere", path))
	if _, err = c.VerifyCheckpoint(ctx, "base", nil); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), file) {
		t.Errorf("a symlink: %v", err)
	}
	if _, err = c.VerifyCheckpoint(ctx, "nope", nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("none: %v", err)
	}
}

// Images are kept while sandboxes and checkpoints need them, and can be removed
// by name, digest and beginning of a digest after.
func TestImagesAreRemoved(t *testing.T) {
	ctx, root := t.Context(), folder(t)
	c, _ := withCheckpoint(t, t.TempDir(), root, newWorld(t), "base")
	i, err := c.ImportImage(ctx, root, "app", nil) // the same content is the same image
	check(t, err)
	for _, ref := range []string{"app", i.GetDigest(), i.GetDigest()[:12], "sha256:" + i.GetDigest()} {
		_, err := c.RemoveImage(ctx, ref)
		if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "sandbox src, checkpoint base") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if r, err := c.PruneImages(ctx, false); err != nil || len(r.GetRemoved()) > 0 {
		t.Errorf("prune: %v, %v", r, err)
	}
	check(t, c.DeleteSandbox(ctx, "src"))
	if _, err := c.RemoveImage(ctx, "app"); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "by checkpoint base:") {
		t.Errorf("with a checkpoint: %v", err)
	}
	_, err = c.Fork(ctx, "base", "f")
	check(t, err)
	check(t, c.DeleteSandbox(ctx, "f"))
	_, err = c.DeleteCheckpoint(ctx, "base", false)
	check(t, err)
	_, err = c.CreateSandbox(ctx, createIn("app", "by-name"), nil)
	check(t, err)
	check(t, c.DeleteSandbox(ctx, "by-name"))
	dry, err := c.PruneImages(ctx, true)
	if err != nil || len(dry.GetRemoved()) != 1 || dry.GetRemoved()[0].GetName() != "app" || dry.GetFreedBytes() != i.GetSizeBytes() {
		t.Errorf("dry: %v, %v", dry, err)
	}
	r, err := c.RemoveImage(ctx, "app")
	if err != nil || r.GetFreedBytes() != i.GetSizeBytes() || r.GetImage().GetDigest() != i.GetDigest() {
		t.Errorf("removed: %v, %v", r, err)
	}
	for _, ref := range []string{"app", i.GetDigest(), "abc", ""} {
		if _, err := c.RemoveImage(ctx, ref); !errs.Is(err, errs.NotFound) {
			t.Errorf("remove %q again: %v", ref, err)
		}
	}
	if all, err := c.ListImages(ctx); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
	if _, err := c.ImportImage(ctx, folder(t), "host", nil); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("name host: %v", err)
	}
}

// Whatever is created while images are pruned finds its image.
func TestPruneWhileSandboxesAreMade(t *testing.T) {
	c, _ := serve(t, t.TempDir(), newWorld(t))
	root := folder(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, err := range life.Each(ctx, 60, 6, func(ctx context.Context, i int) error {
		if i%2 == 0 {
			_, err := c.PruneImages(ctx, false)
			return err
		}
		name := fmt.Sprintf("s-%d", i)
		if _, err := c.CreateSandbox(ctx, createIn(root, name), nil); err != nil {
			return err
		}
		list, err := c.ListImages(ctx)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("a sandbox stands on it, and there is %v", list)
		}
		return errors.Join(err, c.DeleteSandbox(ctx, name))
	}) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// A daemon that starts removes host images of before that nothing needs.
func TestOldHostImagesGo(t *testing.T) {
	w, dir, ctx := newWorld(t), t.TempDir(), t.Context()
	shown := t.TempDir()
	c, stop := serve(t, dir, w)
	other := createIn("host", "other")
	other.Mounts = []*broodv1.Mount{{Source: shown, Target: "/mnt/shown"}}
	for _, req := range []*broodv1.CreateSandboxRequest{createIn("host", "now"), other} {
		_, err := c.CreateSandbox(ctx, req, nil)
		check(t, err)
	}
	check(t, stop())
	c, stop = serve(t, dir, w)
	if all, err := c.ListImages(ctx); err != nil || len(all) != 2 {
		t.Fatalf("in use: %v, %v", all, err)
	}
	check(t, c.DeleteSandbox(ctx, "other"))
	check(t, c.DeleteSandbox(ctx, "now"))
	check(t, stop())
	c, _ = serve(t, dir, w)
	if all, err := c.ListImages(ctx); err != nil || len(all) != 1 {
		t.Errorf("unused: %v, %v", all, err)
	}
	_, err := c.CreateSandbox(ctx, createIn("host", "now"), nil)
	check(t, err)
	if all, err := c.ListImages(ctx); err != nil || len(all) != 1 {
		t.Errorf("it was not the one of now: %v, %v", all, err)
	}
}

// Refusals say what is so once, with the name that was asked for.
func TestRefusalsSayItOnce(t *testing.T) {
	ctx := t.Context()
	c, _ := withCheckpoint(t, t.TempDir(), folder(t), newWorld(t), "dup")
	for range 2 {
		b, err := c.ForkMany(ctx, "dup", 1, nil)
		check(t, err)
		_, err = b.Collect(ctx)
		check(t, err)
	}
	_, err := c.DeleteCheckpoint(ctx, "dup", false)
	if !errs.Is(err, errs.FailedPrecondition) || strings.Count(err.Error(), "checkpoint ") != 1 || !strings.Contains(err.Error(), "checkpoint dup is in use by ") {
		t.Errorf("in use: %v", err)
	}
	_, err = c.GetBatch(ctx, "b-")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Reason != "INVALID_ARGUMENT" || !strings.Contains(refused.Metadata["batches"], ",b-") {
		t.Errorf("two batches: %+v", err)
	}
}

// A sandbox whose command has ended does not stand still while it is saved.
func TestCheckpointOfAStoppedSandboxPausesNothing(t *testing.T) {
	ctx := t.Context()
	c, _ := serve(t, t.TempDir(), newWorld(t))
	req := createIn(folder(t), "ended")
	req.Create.Command = []string{"true"}
	_, err := c.CreateSandbox(ctx, req, nil)
	check(t, err)
	for _, err := range c.Logs(ctx, "ended", client.LogOptions{Follow: true}) { // until it has ended
		check(t, err)
	}
	for {
		sb, err := c.GetSandbox(ctx, "ended")
		check(t, err)
		if sb.GetState() == daemonv1.SandboxState_SANDBOX_STATE_STOPPED {
			break
		}
	}
	r, err := c.CreateCheckpoint(ctx, "ended", "disk", client.CheckpointOptions{})
	if err != nil || r.GetPausedMs() != 0 || r.GetCheckpoint().GetHasMemory() {
		t.Errorf("%v, %v", r, err)
	}
}
