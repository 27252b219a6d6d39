package batch

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

const (
	randomLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
	randomLength  = 6
)

// prefixes returns the prefix of each group: its own, else one drawn for its
// source, the same for all groups of that source.
func prefixes(groups []Group, total int, seed [32]byte) []string {
	out := make([]string, len(groups))
	drawn := map[string]string{}
	for i, g := range groups {
		if g.NamePrefix == "" && drawn[g.Source] == "" {
			drawn[g.Source] = drawnPrefix(g.Source, total, seed)
		}
		out[i] = cmp.Or(g.NamePrefix, drawn[g.Source])
	}
	return out
}

// drawnPrefix cuts the source's part so that the longest name of a batch of
// total forks fits.
func drawnPrefix(ref string, total int, seed [32]byte) string {
	_, name, _ := ParseSource(ref) // validated before
	if d, err := digest.Parse(name); err == nil {
		name = d.Short()
	}
	room := id.MaxName - len("-") - randomLength - len("-") - len(strconv.Itoa(total-1))
	if len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	return name + "-" + draw(seed, ref)
}

// draw makes letters of the batch's random bits, others for each source.
func draw(seed [32]byte, ref string) string {
	const even = 256 / len(randomLetters) * len(randomLetters) // above it letters would not be equally likely
	var out []byte
	sum := sha256.Sum256(append(seed[:], ref...))
	for {
		for _, c := range sum {
			if int(c) < even {
				out = append(out, randomLetters[int(c)%len(randomLetters)])
			}
			if len(out) == randomLength {
				return string(out)
			}
		}
		sum = sha256.Sum256(sum[:])
	}
}

// bases returns, for each group, the n of its first fork: n counts over all
// groups that share a prefix.
func bases(groups []Group, prefix []string) []int {
	next := map[string]int{}
	out := make([]int, len(groups))
	for i, g := range groups {
		out[i] = next[prefix[i]]
		next[prefix[i]] += int(g.Count)
	}
	return out
}

// Taken returns AlreadyExists naming every one of the batch's names that is
// in use on a machine it may go to, nil when there is none. The shell asks
// once, before the first Step.
func (b *Batch) Taken(used map[id.Machine][]id.Name) error {
	mine := make(map[id.Name]bool, len(b.forks))
	for _, n := range b.Names() {
		mine[n] = true
	}
	var clashes []string
	for m, names := range used {
		for _, n := range names {
			if mine[n] {
				clashes = append(clashes, string(n)+" on "+string(m))
			}
		}
	}
	if len(clashes) == 0 {
		return nil
	}
	slices.Sort(clashes)
	noun := "names are"
	if len(clashes) == 1 {
		noun = "name is"
	}
	return errs.New(errs.AlreadyExists, "%d %s taken: %s; choose another name prefix, or remove them", len(clashes), noun, strings.Join(clashes, ", "))
}
