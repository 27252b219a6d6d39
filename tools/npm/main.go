// Command npm fetches the npm packages that the tests and linters drive, Node
// itself among them, without an npm client: it reads package-lock.json beside this
// file, downloads each tarball from the registry, and unpacks it after its
// SHA-512 has matched.
//
//	go run ./npm --into DIR
//
// DIR appears whole or not at all, with node_modules and bin inside (node, and
// the managers and turbo where the lock has them), and
// is not touched again until the lock changes. Several runs at once are safe:
// one works, the others wait for it. No script of a package is ever run.
//
// To change what is pinned, edit package.json and let npm write the lock:
// npm install --package-lock-only
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

//go:embed package-lock.json
var pinned []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "npm: %v\n", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("npm", flag.ContinueOnError)
	flags.SetOutput(stderr)
	into := flags.String("into", "", "folder to make, with node_modules and bin/node inside")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp // flag has said what is wrong
	}
	if *into == "" || flags.NArg() > 0 {
		return errors.New("say where to put the packages: go run ./npm --into DIR")
	}
	here, err := thisPlatform(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return err
	}
	return install(ctx, installation{
		lock: pinned, into: *into, platform: here, stderr: stderr,
		registry: func(ctx context.Context) (string, error) { return findRegistry(ctx, realSystem(stderr)) },
	})
}

// platform is a machine in npm's words.
type platform struct{ os, cpu string }

func (p platform) String() string { return p.os + "-" + p.cpu }

// nodePackage is the package that holds Node for the platform.
func (p platform) nodePackage() string { return "node-" + p.String() }

func thisPlatform(goos, goarch string) (platform, error) {
	cpus := map[string]string{"amd64": "x64", "arm64": "arm64"}
	if goos != "linux" || cpus[goarch] == "" {
		return platform{}, fmt.Errorf("Node is pinned for linux on amd64 and arm64, this is %s on %s: run the tests on one of those", goos, goarch)
	}
	return platform{goos, cpus[goarch]}, nil
}
