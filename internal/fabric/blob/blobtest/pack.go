package blobtest

import (
	"testing"

	"github.com/klauspost/compress/zstd"
)

func pack(t *testing.T, b []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	out := e.EncodeAll(b, nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}
