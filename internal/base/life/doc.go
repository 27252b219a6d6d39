// Package life owns goroutines and cleanup.
//
// Every goroutine of brood belongs to a Group: whoever makes the group waits
// for it, so nothing outlives its owner. Undo collects the steps that take
// back a half-made thing. A Group and an Undo may be used from many
// goroutines. The bare go statement is allowed in this package only.
package life
