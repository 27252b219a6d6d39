// Package guest is the daemon's end of the channel to a sandbox: a client of
// the program that is PID 1 inside (package pid1), over any byte stream that
// the driver provides.
//
// Connect works at any moment of a sandbox's life: the first time, after the
// daemon was restarted, and in a fork whose memory still holds the source's
// session. What is started through a client belongs to the sandbox, not to
// the client: programs, their output and their exit statuses outlive it, and
// the next client finds them by the same ids.
//
// A Client is safe for concurrent use. Every call ends with its context; what
// it had asked for may then have happened or not. A client that lost its
// channel fails every call with Unavailable and closes Done. What comes from
// inside a sandbox is not trusted: sizes are bounded, paths are kept below
// their target.
package guest
