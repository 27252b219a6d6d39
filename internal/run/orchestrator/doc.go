// Package orchestrator carries out one run: it does what package dispatch
// decides, by the parts that its Config brings (keys, cache, worker, history),
// and tells a listener what happens.
//
// It owns the order of things and nothing else: how a key is derived, where a
// result is stored and how a command is executed are the parts' business. The
// interfaces it needs of them are declared here.
//
// One goroutine, the loop, owns all state of a run. Keys and restores have a
// few goroutines each, a running task one; they send the loop what came of it.
// The listener is called by one goroutine, an event after the other; when it is
// slow the run waits for it, and tasks that write wait too, so that no output
// is held without bound. A Run leaves no goroutine behind.
package orchestrator
