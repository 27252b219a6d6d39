// Package view shows a run to people and programs: a live view on a terminal,
// lines with a prefix for each task or a block for each, what GitHub's logs and
// summaries understand, and the events as JSON lines.
//
// It renders what package orchestrator tells and decides nothing. A View is told
// events in their order and ticks in between, and writes to what its Options
// name; output is held back until a tick or until there is much of it, so that a
// run of ten thousand hits is not ten thousand writes.
//
// A View is safe for concurrent use: events and ticks come from two goroutines.
package view
