package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// layout is part of the stamp: a change of how packages are laid out makes
// what is there anew.
const layout = "2"

const stampName = ".stamp"

// parallel is how many packages are fetched at once.
const parallel = 4

// installation says what goes where.
type installation struct {
	lock     []byte
	into     string
	platform platform
	stderr   io.Writer
	// registry is asked only when something has to be fetched.
	registry func(ctx context.Context) (string, error)
	// fetcher makes the client; nil: newFetcher.
	fetcher func(registry string) fetcher
}

// stamp identifies what an installation holds.
func (in installation) stamp() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", layout, in.platform)
	sum.Write(in.lock)
	return hex.EncodeToString(sum.Sum(nil))
}

// present says whether the folder holds what the lock says. The stamp is
// written last and moves with the folder, so it stands for all of it.
func (in installation) present() bool {
	have, err := os.ReadFile(filepath.Join(in.into, stampName))
	return err == nil && string(have) == in.stamp()
}

// install makes in.into hold the packages, unless it does.
func install(ctx context.Context, in installation) error {
	if in.present() {
		return nil
	}
	packs, err := parseLock(in.lock, in.platform)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(in.into)), 0o755); err != nil {
		return err
	}
	unlock, err := in.take(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if in.present() {
		return nil // another run was quicker
	}
	if err := in.replaceable(); err != nil {
		return err
	}
	if err := in.sweep(); err != nil {
		return fmt.Errorf("remove what a run left unfinished: %w", err)
	}
	registry, err := in.registry(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(in.stderr, "npm: fetching Node and %d packages for the tests\n", len(packs)-1)
	if err := in.build(ctx, packs, registry); err != nil {
		return explainFull(err, in.into)
	}
	return nil
}

// replaceable refuses to replace a folder that is not ours.
func (in installation) replaceable() error {
	inside, err := os.ReadDir(in.into)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(inside) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(in.into, stampName)); err != nil {
		return fmt.Errorf("%s holds something else: choose another folder, or empty it", in.into)
	}
	return nil
}

// beside returns a path beside in.into that sweep knows.
func (in installation) beside(what string) string { return filepath.Clean(in.into) + "." + what }

// take takes the lock file, waiting for who has it.
func (in installation) take(ctx context.Context) (release func(), err error) {
	f, err := os.OpenFile(in.beside("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !said {
			fmt.Fprintf(in.stderr, "npm: another run is making %s; waiting for it\n", in.into)
			said = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// sweep removes what earlier runs left unfinished. It needs the lock.
func (in installation) sweep() error {
	return errors.Join(os.RemoveAll(in.beside("new")), os.RemoveAll(in.beside("old")))
}

// build fetches and unpacks everything beside in.into and moves it there.
func (in installation) build(ctx context.Context, packs []pack, registry string) (err error) {
	fresh := in.beside("new")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.sweep()) }()
	root, err := os.OpenRoot(fresh)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := in.fetchAll(ctx, packs, registry, root); err != nil {
		return err
	}
	if err := in.linkNode(root); err != nil {
		return err
	}
	if err := root.WriteFile(stampName, []byte(in.stamp()), 0o644); err != nil {
		return err
	}
	if err := os.Rename(in.into, in.beside("old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, in.into)
}

func (in installation) fetchAll(ctx context.Context, packs []pack, registry string, root *os.Root) error {
	makeFetcher := in.fetcher
	if makeFetcher == nil {
		makeFetcher = newFetcher
	}
	f := makeFetcher(registry)
	defer f.client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, p := range packs {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return in.fetchOne(ctx, f, p, root, fmt.Sprintf(".tarball-%d", i))
		})
	}
	return g.Wait()
}

func (in installation) fetchOne(ctx context.Context, f fetcher, p pack, root *os.Root, scratch string) error {
	tarball, err := root.Create(scratch)
	if err != nil {
		return err
	}
	defer func() {
		tarball.Close()
		root.Remove(scratch) // a failure removes the whole folder
	}()
	if err := f.get(ctx, p, tarball); err != nil {
		return err
	}
	keep := func(string) bool { return true }
	if p.name == in.platform.nodePackage() {
		// Its headers and manual are four fifths of its files.
		keep = func(name string) bool { return strings.HasPrefix(name, "bin/") || !strings.Contains(name, "/") }
	}
	if err := unpack(tarball, root, p.dir, packageLimits, keep); err != nil {
		return fmt.Errorf("unpack %s: %w", p, err)
	}
	return nil
}

// linkNode makes bin/node, the same path on every platform.
func (in installation) linkNode(root *os.Root) error {
	target := "node_modules/" + in.platform.nodePackage() + "/bin/node"
	info, err := root.Stat(target)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o100 == 0 {
		return fmt.Errorf("package-lock.json has no %s with a program bin/node", in.platform.nodePackage())
	}
	if err := root.Mkdir("bin", 0o755); err != nil {
		return err
	}
	if err := root.Symlink("../"+target, "bin/node"); err != nil {
		return err
	}
	return in.linkPrograms(root)
}

// programs are what else gets a path in bin, where the lock has its package;
// %s is the platform as the package's name writes it.
var programs = []struct{ name, target string }{
	{"turbo", "@turbo/linux-%s/bin/turbo"},
	{"npm", "npm/bin/npm-cli.js"},
	{"pnpm", "pnpm/bin/pnpm.cjs"},
	{"pnpm-native", "@pnpm/exe.linux-%s/pnpm"},
	{"yarn", "yarn/bin/yarn.js"},
	{"yarn-berry", "@yarnpkg/cli-dist/bin/yarn.js"},
	{"bun", "@oven/bun-linux-%s/bin/bun"},
	{"buf", "@bufbuild/buf-linux-%s/bin/buf"},
}

// linkPrograms makes the paths of programs. Each is run with bin in PATH, so
// that those written in JavaScript find Node.
func (in installation) linkPrograms(root *os.Root) error {
	for _, p := range programs {
		for _, cpu := range map[string][]string{"x64": {"x64", "64"}, "arm64": {"arm64", "aarch64"}}[in.platform.cpu] {
			target := "node_modules/" + strings.ReplaceAll(p.target, "%s", cpu)
			info, err := root.Stat(target)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := root.Chmod(target, 0o755); err != nil {
				return err
			}
			if err := root.Symlink("../"+target, "bin/"+p.name); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// explainFull says how much is free when the disk is full.
func explainFull(err error, into string) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	var st syscall.Statfs_t
	if syscall.Statfs(filepath.Dir(filepath.Clean(into)), &st) != nil {
		return err
	}
	free := st.Bavail * uint64(st.Bsize) >> 20
	return fmt.Errorf("the disk is full: about 550 MB are needed in %s, %d MB are free: %w", filepath.Dir(filepath.Clean(into)), free, err)
}
