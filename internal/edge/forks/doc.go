// Package forks has the commands of sandboxes, checkpoints, batches and images,
// and of the daemon that owns them. They reach it through package client and
// nothing else, and show what comes back, for people or as JSON.
//
// Each command is one file named after it, with a constructor that commands
// lists. The daemon is a function that main passes in.
package forks
