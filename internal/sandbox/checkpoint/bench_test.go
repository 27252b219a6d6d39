package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/sandbox/checkpoint"
)

// BenchmarkPublish compares a publish with hashing the same bytes once on one
// core, which is the least that it could take.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			s := open(b, newHome(b))
			content := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
			var hashing, publishing time.Duration
			n := 0
			for b.Loop() {
				n++
				began := time.Now()
				sha256.Sum256(content)
				hashing += time.Since(began)
				d, err := s.Begin(id.Name(fmt.Sprint(n)), checkpoint.Options{})
				if err != nil {
					b.Fatal(err)
				}
				for _, f := range []string{"pages.img", "checkpoint.img", "pages_meta.img"} {
					if err := os.WriteFile(filepath.Join(d.Dir(), f), content[:max(1000, len(content)*int(f[0]&1^1))], 0o600); err != nil {
						b.Fatal(err)
					}
				}
				began = time.Now()
				if _, err := d.Publish(b.Context(), facts()); err != nil {
					b.Fatal(err)
				}
				publishing += time.Since(began)
				if err := s.Delete(id.Name(fmt.Sprint(n))); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(publishing)/float64(hashing), "publish/hash")
			b.ReportMetric(float64(publishing.Microseconds())/1000/float64(n), "ms/publish")
		})
	}
}
