package sandbox

import "fmt"

// State is where a sandbox is in its life (F11).
//
//	Provisioning -> Running <-> Stopped
//	any of them  -> Failed, Deleting -> gone
type State int

// The states. The zero value is none of them, so that a record without a
// state is noticed.
const (
	_            State = iota
	Provisioning       // being made: removed if the daemon dies now
	Running            // its first program runs, or ran and the sandbox still answers
	Stopped            // ended, its record kept
	Deleting           // being taken apart: the rest is removed if the daemon dies now
	Failed             // did not start, or ended by itself; the reason is kept
)

var stateNames = map[State]string{
	Provisioning: "provisioning", Running: "running", Stopped: "stopped", Deleting: "deleting", Failed: "failed",
}

// String returns the word that records and people use.
func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("state %d", int(s))
}

// MarshalText writes the word.
func (s State) MarshalText() ([]byte, error) {
	if n, ok := stateNames[s]; ok {
		return []byte(n), nil
	}
	return nil, fmt.Errorf("no such sandbox state: %d", int(s))
}

// UnmarshalText reads the word.
func (s *State) UnmarshalText(b []byte) error {
	for k, n := range stateNames {
		if n == string(b) {
			*s = k
			return nil
		}
	}
	return fmt.Errorf("no such sandbox state: %.40q", b)
}
