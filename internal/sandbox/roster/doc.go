// Package roster holds what is known of the machines that can take forks:
// their shape, how much of them is promised, what they can run and which
// checkpoints they hold.
//
// Values only: nothing here asks a machine, keeps a connection, reads a clock
// or starts a goroutine. A List is a snapshot taken by somebody else at one
// moment; whoever places forks adds his own reservations on top. Values may
// be read by many goroutines at once; changing one is for its owner alone.
package roster
