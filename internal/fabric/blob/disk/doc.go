// Package disk keeps blobs and the results of actions in a folder, bounded in
// size.
//
// A blob is a file named by its SHA-256 and is the bytes themselves; a result
// is a file named by its action's digest, apart for each instance. Everything
// is written under a temporary name, checked, and renamed: a process that is
// killed leaves temporary files, which the next one removes, and never a wrong
// blob. Nothing is synced: a file that a power cut spoiled is found out when it
// is read, and removed. When the folder outgrows its bound, what was used
// longest ago goes first; times of use survive as the files' times.
//
// A folder is taken when it is new or empty, or has the marker of one that was;
// files in it with names of others are left alone. One process at a time uses a
// folder, by a lock. A Store is safe for
// concurrent use; what is being read may be removed and is read to its end all
// the same.
package disk
