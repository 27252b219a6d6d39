package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// channelFD is the number that the guest's channel has in every sandbox
// process, above all that gVisor gives out at a start. A checkpoint holds the
// number of a host socket's descriptor, and a restore takes the socket by that
// number, although it translates those of files; how gVisor numbers depends on
// the order of a map and on which logs are on.
const channelFD = 200

// passFlag gives the sandbox process descriptors for the guest: a list of
// host:guest pairs.
const passFlag = "--pass-fd="

// pinChannel moves the channel to its number, in args as well. gVisor's sandbox
// process starts itself again with its arguments, and there is nothing to do
// then.
func pinChannel(args []string) error {
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
			if fd == channelFD {
				return nil
			}
			if err := unix.Dup3(fd, channelFD, 0); err != nil {
				return fmt.Errorf("move the channel: %w", err)
			}
			pairs[j] = fmt.Sprintf("%d:3", channelFD)
			args[i] = passFlag + strings.Join(pairs, ",")
			return unix.Close(fd)
		}
	}
	return nil
}

func mustPinChannel() {
	if err := pinChannel(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(128)
	}
}
