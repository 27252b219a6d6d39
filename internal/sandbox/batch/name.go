package batch

import (
	"math/rand/v2"
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
	draw := rand.New(rand.NewChaCha8(seed))
	drawn := map[string]string{}
	out := make([]string, len(groups))
	for i, g := range groups {
		out[i] = g.NamePrefix
		if out[i] != "" {
			continue
		}
		if _, ok := drawn[g.Source]; !ok {
			drawn[g.Source] = drawnPrefix(g.Source, total, draw)
		}
		out[i] = drawn[g.Source]
	}
	return out
}

// drawnPrefix cuts the source's part so that the longest name of a batch of
// total forks fits.
func drawnPrefix(ref string, total int, draw *rand.Rand) string {
	_, name, _ := ParseSource(ref) // validated before
	if d, err := digest.Parse(name); err == nil {
		name = d.Short()
	}
	room := id.MaxName - len("-") - randomLength - len("-") - len(strconv.Itoa(total-1))
	if len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('-')
	for range randomLength {
		b.WriteByte(randomLetters[draw.IntN(len(randomLetters))])
	}
	return b.String()
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
