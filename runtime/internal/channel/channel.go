// Package channel keeps the guest's channel under one descriptor number in
// every sandbox process, so that it survives checkpoint and restore.
package channel

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FD is the number that the guest's channel has in every sandbox
// process, above all that gVisor gives out at a start. A checkpoint holds the
// number of a host socket's descriptor, and a restore takes the socket by that
// number, although it translates those of files; how gVisor numbers depends on
// the order of a map and on which logs are on.
const FD = 200

// passFlag gives the sandbox process descriptors for the guest: a list of
// host:guest pairs.
const passFlag = "--pass-fd=" //nolint:gosec // no password: "pass" is a verb here

// Pin moves the channel to its number, in args as well. gVisor's sandbox
// process starts itself again with its arguments, and there is nothing to do
// then.
func Pin(args []string) error {
	for i, a := range args {
		list, ok := strings.CutPrefix(a, passFlag)
		if !ok {
			continue
		}
		pairs := strings.Split(list, ",")
		for j, pair := range pairs {
			host, guest, ok := strings.Cut(pair, ":")
			if !ok || guest != "3" {
				continue
			}
			fd, err := strconv.Atoi(host)
			if err != nil {
				return fmt.Errorf("argument %q: %w", a, err)
			}
			if fd == FD {
				return nil
			}
			if err := unix.Dup3(fd, FD, 0); err != nil {
				return fmt.Errorf("move the channel: %w", err)
			}
			pairs[j] = fmt.Sprintf("%d:3", FD)
			args[i] = passFlag + strings.Join(pairs, ",") //nolint:gosec // i ranges over args
			return unix.Close(fd)
		}
	}
	return nil
}
