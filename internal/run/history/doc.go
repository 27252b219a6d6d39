// Package history remembers what runs did: past runs with their tasks, what
// each task took over its last fifty runs, which tasks are flaky, and what the
// parts of a task's last keys were.
//
// It is one SQLite file (WAL) that several processes use at once; a writer
// waits for another one. Figures that a run asks for at its start are kept
// ready, a row for each task, workspace and platform, so that one query
// answers for ten thousand tasks. Parts of keys are stored by their digest:
// groups that tasks share, or that did not change, are there once.
//
// Opening SQLite and writing a run costs more than looking three hundred results
// up. Most runs find everything in the cache and teach nothing: they are added
// to a small file beside the database, a journal, which begins with the figures
// that the next run asks for. Whoever opens the database takes the journals'
// runs over.
//
// A task that was restored has the figures of the run that produced it, so a
// machine that only ever restores knows what its tasks would take. Losing the
// file loses forecasts, nothing else: no decision about correctness reads it.
//
// A History is safe for concurrent use.
package history
