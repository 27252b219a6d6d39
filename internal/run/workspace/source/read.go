package source

import (
	"bytes"
	"errors"
	"io"
)

// readFull fills b and says how much there was; a file that became shorter
// meanwhile is no error.
func readFull(r io.Reader, b []byte) (int, error) {
	n, err := io.ReadFull(r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

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
