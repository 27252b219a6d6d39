// Package exec performs what batches decide: it asks the host for forks,
// reports what became of them, and keeps the books.
//
// A batch belongs to the Manager, not to its caller: one goroutine owns each
// batch that works, and callers read its records. A batch is a folder: the
// request and, while it works, a journal of every event it was given, written
// before its effects are performed. A Manager that is opened again replays the
// journals, removes or recognises the forks that were being started, and goes
// on. Books are kept for a day after the end (F47).
//
// A Manager is safe for concurrent use. The queue of a batch's events is
// bounded; whoever reports into a full one waits.
package exec
