// Package store keeps the cache's bytes on this machine: contents by their
// SHA-256, packed with zstd where that pays, and entries by their key.
//
// Everything is written to a temporary name and renamed, so a process that is
// killed leaves debris, never half a content; nothing is synced, because every
// read is checked and damage is only a miss. Several processes share a store:
// none needs a lock to read or write. One at a time, and only when the store
// outgrew its bound, drops the entries unused for longest with the contents
// that only they name; a content that nothing has named stays for an hour, since
// its entry may be on its way.
//
// A Store is safe for concurrent use.
package store
