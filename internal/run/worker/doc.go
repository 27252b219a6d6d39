// Package worker executes one attempt of a task on this machine.
//
// It owns the task's processes from start to the last one's end: their
// environment, their process group, their output, and what they used. Which
// lines run for a script of package.json is decided by package script. It
// knows nothing of graphs, caches or other machines, and decides nothing about
// what runs next.
//
// A task ends when its own process ends, and its times are up to there. Output
// that a child still holds open is read a quarter of a second more; then
// whatever is left of the process group is stopped, SIGTERM first and SIGKILL
// two seconds later, and the result waits until nothing is. An attempt that is
// aborted or runs out of time is stopped in the same way. When this program is
// killed itself, a shell beside it (guard) ends the groups.
//
// A task that is interactive and ends has the Terminal, where there is one: it
// is the foreground's process group, and its output is not captured.
//
// A Worker may execute many orders at once; bounding them is the caller's
// business. Close waits for everything that it started.
package worker
