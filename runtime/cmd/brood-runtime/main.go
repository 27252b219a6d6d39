// Command brood-runtime runs gVisor sandboxes for the daemon. It is one program
// with several faces: gVisor's helper processes, which gVisor starts from this
// very file under names of its own, and the holder and the launcher, which the
// start command puts into namespaces of their own.
//
// It is no tool for people; package launch of the main module starts it and
// talks to it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"brood/runtime/internal/channel"
	"brood/runtime/internal/filters"
	"brood/runtime/internal/holder"
	"brood/runtime/internal/launcher"
	"brood/runtime/internal/quiet"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/version"
)

func main() {
	if isHelper(os.Args) {
		helper()
		return
	}
	os.Exit(run(os.Args[1:]))
}

// isHelper reports whether gVisor started this process. It names its helpers
// runsc-sandbox and runsc-gofer; its unmounting helper comes by its command
// alone, behind flags.
func isHelper(args []string) bool {
	if strings.HasPrefix(args[0], "runsc-") {
		return true
	}
	for _, a := range args[1:] {
		if !strings.HasPrefix(a, "-") {
			return a == "umount"
		}
	}
	return false
}

func helper() {
	if err := channel.Pin(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(128)
	}
	filters.Register()
	quiet.Systrap()
	cli.Run(map[subcommands.Command]string{
		new(cmd.Boot):   "",
		new(cmd.Gofer):  "",
		new(cmd.Umount): "",
	}, nil)
}

func run(args []string) int {
	if len(args) == 0 {
		return usage()
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := fs.String("dir", "", "run directory")
	if err := fs.Parse(args[1:]); err != nil || fs.NArg() > 0 {
		return usage()
	}
	switch {
	case args[0] == "version":
		_, _ = fmt.Fprintln(os.Stdout, version.Version())
		return 0
	case *dir == "":
		return usage()
	case args[0] == "start":
		return holder.Start(*dir)
	case args[0] == "holder":
		return holder.Run(*dir)
	case args[0] == "launcher":
		return launcher.Run(*dir)
	}
	return usage()
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: brood-runtime version | start --dir DIR\nThis program is started by brood.")
	return 2
}
