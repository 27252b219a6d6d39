// Command brood-full is all of brood in one program: every command, and the
// daemon that they start. It is carried by command brood.
//
// Nothing is decided here. The commands reach the daemon as any other client
// does; the daemon is package daemon, and is handed to them as a function, so
// that neither knows the other.
package main

import (
	"os"

	"brood/internal/edge/full"
)

func main() { os.Exit(full.Main(os.Args[1:], runDaemon)) }
