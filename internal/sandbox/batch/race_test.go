//go:build race

package batch

// underRace: the race detector's bookkeeping grows with the memory that is
// touched, so what it makes of a growth says nothing of the code's.
const underRace = true
