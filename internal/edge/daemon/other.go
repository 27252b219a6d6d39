//go:build !linux

package daemon

import (
	"net"

	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/sandbox"
)

// Sandboxes run on Linux; elsewhere the package only compiles, for the parts
// of the command line that need its types.

func filesCheck(sandbox.Driver) func(string) error { return nil }

func peerUID(net.Conn) (int, error) {
	return 0, errs.New(errs.Unsupported, "a daemon runs on Linux only")
}

func gvisorDriver(*home.Home) (sandbox.Driver, error) {
	return nil, errs.New(errs.Unsupported, "sandboxes run on Linux only: use a daemon on a Linux machine")
}
