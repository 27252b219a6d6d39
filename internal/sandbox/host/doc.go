// Package host owns the sandboxes of one machine: it makes, forks, saves and
// removes them through a driver and keeps a record of each.
//
// A record is written before the effect it announces. When a daemon is
// started again, Open takes over what runs, removes what was half made with
// everything it held, and touches nothing that it has no record of having
// made. A sandbox that ends by itself keeps its record, with the reason.
//
// A Host is safe for concurrent use. Operations on one sandbox happen one
// after the other; on different ones at the same time, at most MaxStarting of
// them starting. Host knows nothing of batches or of other machines.
package host
