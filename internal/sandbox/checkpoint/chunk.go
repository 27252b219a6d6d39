package checkpoint

import (
	"errors"
	"hash/crc32"
	"io"

	"brood/internal/base/digest"
)

// Cut says how a file is cut into chunks.
type Cut string

// A runtime that writes pages one after another, leaving out the untouched
// ones, shifts all that follow when one page more is written: such a file is
// cut by content, so that the chunks after it stay the same. A file where
// every page keeps its place is cut by offset.
const (
	ByContent Cut = "content"
	ByOffset  Cut = "offset"
)

// Cutting by content looks at whole pages, because memory moves by whole
// pages: a chunk ends after a page whose CRC-32C has its low bits zero, one
// page in sixteen, but not before minPages and no later than maxPages. That
// makes about 19 pages, 76 KiB, of ordinary memory. The CRC is a choice of
// speed: processors compute it faster than memory can be read.
const (
	page     = 4096
	cutMask  = 1<<4 - 1
	minPages = 4
	maxPages = 64
	maxChunk = maxPages * page
	// cutOffset is the size of chunks of files that are cut by offset.
	cutOffset = 16 * page
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunksOf reads r to its end and returns its chunks.
func chunksOf(r io.Reader, cut Cut) ([]Chunk, error) {
	var chunks []Chunk
	buf := make([]byte, 256*page)
	sum := digest.NewWriter()
	for {
		n, err := io.ReadFull(r, buf)
		from := 0
		var size = sum.Size()
		for to := 0; to < n; {
			p := buf[to:min(to+page, n)]
			to += len(p)
			size += int64(len(p))
			ends := endsChunk(size, p, cut)
			if !ends && to < n {
				continue
			}
			_, _ = sum.Write(buf[from:to]) // never fails
			from = to
			if ends {
				chunks = append(chunks, Chunk{Size: size, SHA256: sum.Digest()})
				sum, size = digest.NewWriter(), 0
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if sum.Size() > 0 {
				chunks = append(chunks, Chunk{Size: sum.Size(), SHA256: sum.Digest()})
			}
			return chunks, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// endsChunk says whether a chunk that has size bytes with p, its last page,
// ends there.
func endsChunk(size int64, p []byte, cut Cut) bool {
	if cut == ByOffset {
		return size >= cutOffset
	}
	if size < minPages*page {
		return false
	}
	return size >= maxChunk || crc32.Checksum(p, castagnoli)&cutMask == 0
}
