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
	defer e.Close()
	return e.EncodeAll(b, nil)
}
