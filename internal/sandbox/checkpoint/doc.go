// Package checkpoint is the store of one machine's checkpoints, under
// $BROOD_HOME/checkpoints.
//
// A checkpoint is a folder by its name: files/ as a driver wrote them,
// manifest.json, whose SHA-256 is the checkpoint's digest, and record.json
// with what may change (pins, times of use). It is written beside, in a
// folder whose name begins with a dot, and published by one rename, manifest
// last: it exists whole or not at all. Everything whose name begins with a
// dot is debris of a killed process; Open removes it.
//
// The store knows nothing of drivers beyond what a manifest says, starts no
// sandbox and copies nothing to other machines. It does not decide what keeps
// a checkpoint alive: callers ask before they delete. A Store is safe for
// concurrent use; the caller of Open holds the lock of the daemon, so that no
// other process is writing here.
package checkpoint
