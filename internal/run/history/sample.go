package history

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"brood/internal/run"
)

// kept is how many runs of a task are remembered.
const kept = 50

// sample is what one run of a task took.
type sample struct {
	began   int64 // seconds since 1970
	wall    time.Duration
	cpu     time.Duration
	peak    int64
	key     [8]byte // the key's beginning
	sampled bool
	failed  bool
	retried bool // passed after it had failed
	hit     bool // it was restored, and these are its producer's figures
}

const (
	flagSampled = 1 << iota
	flagFailed
	flagRetried
	flagHit
)

func prefix(k run.Key) (p [8]byte) {
	if len(k) >= 16 {
		_, _ = hex.Decode(p[:], []byte(k[:16])) // a key that is none has no digits
	}
	return p
}

func encodeSamples(all []sample) []byte {
	b := make([]byte, 0, len(all)*32+1)
	b = append(b, 1) // the format of what follows
	for _, s := range all {
		flags := byte(0)
		for i, on := range []bool{s.sampled, s.failed, s.retried, s.hit} {
			if on {
				flags |= 1 << i
			}
		}
		b = append(b, flags)
		b = append(b, s.key[:]...)
		b = binary.AppendVarint(b, s.began)
		b = binary.AppendVarint(b, int64(s.wall))
		b = binary.AppendVarint(b, int64(s.cpu))
		b = binary.AppendVarint(b, s.peak)
	}
	return b
}

// decodeSamples returns nothing for what is not samples: history is a help,
// not a truth.
func decodeSamples(b []byte) []sample {
	if len(b) == 0 || b[0] != 1 {
		return nil
	}
	b = b[1:]
	var all []sample
	for len(b) > 9 && len(all) < 10*kept {
		var s sample
		f := b[0]
		s.sampled, s.failed, s.retried, s.hit = f&flagSampled != 0, f&flagFailed != 0, f&flagRetried != 0, f&flagHit != 0
		copy(s.key[:], b[1:9])
		b = b[9:]
		var v [4]int64
		for i := range v {
			x, n := binary.Varint(b)
			if n <= 0 {
				return all
			}
			v[i], b = x, b[n:]
		}
		s.began, s.wall, s.cpu, s.peak = v[0], time.Duration(v[1]), time.Duration(v[2]), v[3]
		all = append(all, s)
	}
	return all
}

// Figures are what a task took before, on one platform.
type Figures struct {
	// Runs is how many successful runs the figures are made of, at most fifty;
	// 0 says that nothing is known. Failures are the failed ones among the last
	// fifty.
	Runs, Failures int
	// Wall is the median, Wall90 what nine of ten runs kept within, CPU the
	// median of user and system time.
	Wall, Wall90, CPU time.Duration
	// PeakMemory is the most that any of the runs used, in bytes.
	PeakMemory int64
	// Sampled says that memory was read every so often in some of the runs.
	Sampled bool
	// Flaky says that the same key passed and failed, or passed on a retry.
	Flaky bool
}

func figures(all []sample) Figures {
	var f Figures
	var wall, cpu []time.Duration
	passed, failed := map[[8]byte]bool{}, map[[8]byte]bool{}
	for _, s := range all {
		if s.failed {
			f.Failures++
			failed[s.key] = true
			continue
		}
		if !s.hit {
			passed[s.key] = true
		}
		f.Flaky = f.Flaky || s.retried
		wall, cpu = append(wall, s.wall), append(cpu, s.cpu)
		f.PeakMemory = max(f.PeakMemory, s.peak)
		f.Sampled = f.Sampled || s.sampled
	}
	for k := range failed {
		f.Flaky = f.Flaky || passed[k]
	}
	f.Runs = len(wall)
	f.Wall, f.Wall90, f.CPU = part(wall, 50), part(wall, 90), part(cpu, 50)
	return f
}

// part returns the value that percent of the others do not exceed; 0 of none.
func part(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}
