package cache

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// An interrupted save ends in the middle of a file.
func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := untilDone{ctx, strings.NewReader("a large file")}
	if b, err := io.ReadAll(io.LimitReader(r, 7)); string(b) != "a large" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	cancel()
	if b, err := io.ReadAll(r); len(b) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %q, %v", b, err)
	}
}
