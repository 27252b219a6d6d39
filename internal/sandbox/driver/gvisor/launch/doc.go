// Package launch is the agreement between the daemon and the runtime program
// that runs gVisor sandboxes for it, and the daemon's side of it.
//
// The runtime program has two long-lived processes in namespaces of its own:
// the holder, which is process 1 there, reaps, keeps file descriptors and
// starts the launcher again when it dies; and the launcher, which calls gVisor
// and answers requests on a Unix socket in a directory that the daemon chose.
// StartHolder starts both, Dial reaches them.
//
// The package owns the frames and messages (protocol.go, conn.go), the checks
// that both sides make (validate.go), the client and the start. It must not
// know gVisor, keep sandboxes, or decide what runs. Both the daemon's module
// and the runtime's module import it, so it depends on little.
//
// A Client is safe for concurrent use and holds a small pool of connections;
// a Conn belongs to one user at a time.
package launch
