// Package daemon is the process that owns the sandboxes of one machine, seen
// from outside: it composes host, batches, images and checkpoints, and serves
// cua.daemon.v1 and brood.v1 on a Unix socket and on a loopback port.
//
// Handlers translate: they check what crosses, call one owner, and turn its
// answer into messages. Whatever decides anything is not here. One daemon
// runs in a home, by a lock; everything it starts ends before Run returns,
// except the sandboxes.
package daemon
