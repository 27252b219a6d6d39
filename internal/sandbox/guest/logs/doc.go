// Package logs is the format of a sandbox's output on disk and its two ends.
//
// A log is two segment files, used in turns: the one being written, and the
// one before it. When the current segment reaches its limit, the other one is
// emptied and used, so that a log never takes more than twice the limit. Each
// segment starts with a generation number that says which is older; behind it
// are records of a stream's bytes with their time and a checksum.
//
// The Writer is the program inside the sandbox, the only one that writes; it
// is safe for concurrent use. A Reader is for one goroutine; any number of
// readers may read while the log is written, also when no daemon runs.
package logs
