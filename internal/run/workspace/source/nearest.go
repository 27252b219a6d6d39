package source

import "strings"

// Nearest returns the name that a person most likely meant by word, "" when
// none is near: at most a third of its letters differ.
func Nearest(word string, names []string) string {
	if len(word) > 200 {
		return ""
	}
	best, at := "", 1+(len(word)+2)/3
	lower := strings.ToLower(word)
	for _, name := range names {
		d := distance(lower, strings.ToLower(name), at)
		if d < at {
			best, at = name, d
		}
	}
	return best
}

// distance is that of Levenshtein with swapped neighbours counted once, in
// bytes; past limit it may return anything from limit on.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
