// Package fake is a driver whose sandboxes are data of this process: for tests
// of everything above a driver, without a kernel feature, a program or a disk
// that takes part. Its guests speak the real protocol of package proto over
// memory, so that package guest cannot tell the difference.
//
// Programs are state machines (Program) that can be copied at any moment,
// which is all that a capture needs. A few that shells and tests like to call
// are there; a test adds its own with World.Program. Captures are real files.
//
// A World outlives the Drivers made of it, as a machine outlives a daemon.
// Hooks put faults and delays where a real runtime has them; Faulty does that
// for any driver. Everything is safe for concurrent use. Memory is bounded by
// what programs do: this package guards against no hostile one. Time is the
// real one, since the multiplexer shares timers between testing bubbles.
package fake
