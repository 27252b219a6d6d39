// Package lease keeps the book of what keeps which checkpoint of one machine:
// forks alive, transfers under way, child checkpoints, pins, batches.
//
// A checkpoint with a holder is never removed; a temporary one is due for
// removal as soon as it has none (F42). The book decides, somebody else
// deletes: ask Due, Condemn, delete the files, Forget. A condemned checkpoint
// takes no new holder, so that nobody starts from files that are going.
//
// Pure: no I/O, no clock, no goroutine. The book is written and read back as
// JSON with every holder in it, so that marks survive a restart; a deletion
// that a crash cut off is due again. Not safe for concurrent use: the store's
// lock, or one loop, owns it.
package lease
