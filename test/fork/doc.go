// Package fork holds the tests of the fork side from end to end: real
// sandboxes in gVisor, real daemons that are killed, real clients. It has
// tests only; each starts a daemon of its own in a home of its own.
package fork
