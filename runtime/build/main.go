// Command build makes the runtime program. It needs nothing but the Go
// toolchain.
//
//	go run ./build [--arch ARCH] [--salt TEXT] [--plain] [--stock] OUT
//
// writes OUT/brood-runtime and OUT/brood-runtime.id, the runtime's hash. The
// hash is also the version gVisor knows itself by, and gVisor refuses a
// checkpoint of another version; so the program is linked with a placeholder
// of the same length, and its hash is then written over that. A salt goes into
// the hash: it makes a different runtime of the same source, for tests of an
// upgrade. Plain leaves out the compiled system call filters, to measure them.
//
// Stock writes OUT/runsc too: gVisor's own command of the same module version,
// with the same version string, as the floor that benchmarks compare with.
//
// The program is always for linux; the architecture is this machine's unless
// given (a flag, because $GOARCH would make go run build this command for it).
// Filters are compiled by running a program, so a build for another machine
// goes without them.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	program       = "./cmd/brood-runtime"
	stock         = "gvisor.dev/gvisor/runsc"
	filtersFile   = "internal/filters/generated.go"
	versionSymbol = "gvisor.dev/gvisor/runsc/version.version"
	// The placeholder has the length of a hash and is found nowhere else.
	placeholder = "the-hash-of-the-brood-runtime---"
)

type builder struct {
	out, salt    string
	plain, stock bool
	arch         string

	root string // the runtime module
	temp string
}

func main() {
	var b builder
	flag.StringVar(&b.salt, "salt", "", "text that goes into the hash")
	flag.StringVar(&b.arch, "arch", runtime.GOARCH, "build for this architecture")
	flag.BoolVar(&b.plain, "plain", false, "leave out the compiled system call filters")
	flag.BoolVar(&b.stock, "stock", false, "write gVisor's own runsc too")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: build [--arch ARCH] [--salt TEXT] [--plain] [--stock] OUT")
		os.Exit(2)
	}
	b.out = flag.Arg(0)
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "build runtime:", err)
		os.Exit(1)
	}
}

func (b *builder) run() (err error) {
	if b.out, err = filepath.Abs(b.out); err != nil {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	if b.root, err = moduleRoot(); err != nil {
		return err
	}
	if b.temp, err = os.MkdirTemp("", "brood-runtime-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.temp) }()

	overlay, err := b.filters()
	if err != nil {
		return err
	}
	content, err := b.link(program, placeholder, overlay)
	if err != nil {
		return err
	}
	hash := b.hash(content)
	if content, err = stamp(content, hash); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(b.out, "brood-runtime"), content); err != nil {
		return err
	}
	if b.stock {
		content, err := b.link(stock, hash, nil)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(b.out, "runsc"), content); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(b.out, "brood-runtime.id"), []byte(hash+"\n"))
}

// moduleRoot returns the folder of the module this command is part of.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "brood/runtime/build").Output()
	if err != nil {
		return "", fmt.Errorf("find the runtime module (run this from inside it): %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// filters compiles the system call filters and returns the go command's
// arguments that put them in place of the committed file.
func (b *builder) filters() ([]string, error) {
	if b.plain {
		return nil, nil
	}
	if b.arch != runtime.GOARCH || runtime.GOOS != "linux" {
		fmt.Fprintf(os.Stderr, "build runtime: no compiled system call filters: they can be made on linux/%s only\n", b.arch)
		return nil, nil
	}
	source, err := b.goCommand("run", "-trimpath", "./internal/filters/gen")
	if err != nil {
		return nil, err
	}
	generated := filepath.Join(b.temp, "generated.go")
	if err := os.WriteFile(generated, source, 0o600); err != nil {
		return nil, err
	}
	replace, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(b.root, filtersFile): generated},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.temp, "overlay.json")
	return []string{"-overlay", file}, os.WriteFile(file, replace, 0o600)
}

// hash is the first 32 hexadecimal digits of the SHA-256 of the program with
// the placeholder, and of the salt.
func (b *builder) hash(content []byte) string {
	h := sha256.New()
	h.Write(content)
	h.Write([]byte(b.salt))
	return hex.EncodeToString(h.Sum(nil))[:len(placeholder)]
}

// stamp puts the hash where the placeholder is.
func stamp(content []byte, hash string) ([]byte, error) {
	if n := bytes.Count(content, []byte(placeholder)); n != 1 {
		return nil, fmt.Errorf("the placeholder of the version is in the program %d times, want once", n)
	}
	return bytes.Replace(content, []byte(placeholder), []byte(hash), 1), nil
}

// link builds pkg as a static, reproducible program with the version in it.
func (b *builder) link(pkg, version string, overlay []string) ([]byte, error) {
	out := filepath.Join(b.temp, "linked")
	args := []string{
		"build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= '-X=" + versionSymbol + "=" + version + "'",
		"-o", out,
	}
	args = append(args, overlay...)
	if _, err := b.goCommand(append(args, pkg)...); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// writeFile replaces path at once: a program that runs cannot be overwritten.
func writeFile(path string, content []byte) error {
	mode := os.FileMode(0o644)
	if filepath.Ext(path) == "" {
		mode = 0o755
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, content, mode); err != nil {
		return err
	}
	if err := os.Chmod(temp, mode); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// goCommand runs the go command in the module for linux without C.
func (b *builder) goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.arch, "GOFLAGS=", "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
