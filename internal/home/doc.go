// Package home owns $BROOD_HOME: where things lie, the locks on them and the
// format of the records kept there.
//
// A record is a JSON file written by rename, with a format number. Older
// formats are migrated forward when read, newer ones are refused by name, so
// that going back to an older brood says so instead of guessing. A Home is
// immutable and safe for concurrent use; two processes are kept apart by
// flock, which the kernel frees when one dies.
package home
