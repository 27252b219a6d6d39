package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkStart starts "brood version" and a Go program that does nothing, in
// turns, and reports the medians and their ratio. It needs `make build`.
func BenchmarkStart(b *testing.B) {
	brood, err := filepath.Abs("../../bin/brood")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(brood); err != nil {
		b.Fatal("run `make build` first: ", err)
	}
	source := filepath.Join(b.TempDir(), "nothing.go")
	nothing := filepath.Join(b.TempDir(), "nothing")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", nothing, source).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var ours, floor []time.Duration
	start := func(program string, args ...string) time.Duration {
		began := time.Now()
		if err := exec.CommandContext(b.Context(), program, args...).Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	for b.Loop() {
		ours = append(ours, start(brood, "version"))
		floor = append(floor, start(nothing))
	}
	middle := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2]) / float64(time.Millisecond)
	}
	b.ReportMetric(middle(ours), "ms")
	b.ReportMetric(middle(floor), "floor-ms")
	b.ReportMetric(middle(ours)/middle(floor), "ratio")
}
