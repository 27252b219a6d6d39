// Package entry is what the cache keeps of a task that succeeded: its outputs
// by path and digest, its output text, and what the run that produced it
// measured; and how that is written as bytes.
//
// Contents are named by digest and lie elsewhere, save for small ones, which
// ride along. Decode trusts nobody: what it returns has clean paths below the
// root, in order and each once, and never one that .git is part of. The
// package does no I/O. Values are read-only once made.
package entry
