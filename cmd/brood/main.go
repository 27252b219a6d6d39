// Command brood is all of brood in one program: the command line and the
// daemon that it starts.
//
// Nothing is decided here. The command line is package cli, which reaches the
// daemon as any other client does; the daemon is package daemon, and is handed
// to the command line as a function, so that neither knows the other.
package main

import (
	"os"

	"brood/internal/edge/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], runDaemon)) }
