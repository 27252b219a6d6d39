// Package store keeps the cache's bytes on this machine: contents by their
// SHA-256, packed with zstd where that pays, and entries by their key.
//
// Everything is written to a temporary name and renamed, so a process that is
// killed leaves debris, never half a content; nothing is synced, because every
// read is checked and damage is only a miss. Several processes share a store:
// none needs a lock to read or write. One at a time, and only when the store
// outgrew its bound, drops the entries unused for longest and the contents
// that no entry names; a content younger than an hour stays, since its entry
// may be on its way.
//
// A Store is safe for concurrent use.
package store
