// Command pack compresses a program for package program: pack PROGRAM FOLDER
// writes brood-full.zst and brood-full.id into the folder.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: pack PROGRAM FOLDER"))
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "pack:", err)
	os.Exit(1)
}

func pack(program, dir string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	about := fmt.Sprintf("%x %d\n", sha256.Sum256(b), len(b))
	if old, err := os.ReadFile(filepath.Join(dir, "brood-full.id")); err == nil && string(old) == about {
		return nil
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "brood-full.zst"), z.EncodeAll(b, nil), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "brood-full.id"), []byte(about), 0o644) // last: it vouches for the other
}
