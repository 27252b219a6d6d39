package source

import "bytes"

var mark = []byte("\xef\xbb\xbf")

// plain cuts the byte order mark that some editors write.
func plain(raw []byte) []byte { return bytes.TrimPrefix(raw, mark) }

// lines tells the line of an offset.
type lines []int

func linesOf(raw []byte) lines {
	starts := lines{0}
	for at, b := range raw {
		if b == '\n' {
			starts = append(starts, at+1)
		}
	}
	return starts
}

func (l lines) at(offset int) int {
	low, high := 0, len(l)
	for high-low > 1 {
		if mid := (low + high) / 2; l[mid] <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	return low + 1
}

// LineOf returns the line of an offset of raw, from 1.
func LineOf(raw []byte, offset int) int {
	return 1 + bytes.Count(raw[:max(0, min(offset, len(raw)))], []byte("\n"))
}
