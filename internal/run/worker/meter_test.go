//go:build linux

package worker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brood/internal/run/worker"
)

func TestMeasuresTheWholeTree(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sampling := range []bool{false, true} {
		t.Run(fmt.Sprintf("sampling=%v", sampling), func(t *testing.T) {
			w := newWorker(t, worker.Config{Sampling: sampling})
			dir := t.TempDir()
			// One more shell in between: grandchildren count too.
			o := lineOrder(dir, fmt.Sprintf(`sh -c '"%[1]s" & "%[1]s" & wait; true'; true`, exe), burnVar+"="+dir)
			o.Task.PassThrough = []string{burnVar}
			var out bytes.Buffer
			r := w.Execute(t.Context(), o, &out)
			if !r.OK() {
				t.Fatalf("%+v\n%s", r, out.String())
			}
			var cpu, mem int64
			names, _ := filepath.Glob(filepath.Join(dir, "burner-*"))
			for _, name := range names {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				var c, m int64
				if _, err := fmt.Sscan(string(b), &c, &m); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				cpu, mem = cpu+c, mem+m
			}
			t.Logf("burnt %v and %d MiB, measured %v and %d MiB, sampled %v", time.Duration(cpu), mem>>20, r.Usage.CPU, r.Usage.PeakMemory>>20, r.Usage.Sampled)
			if len(names) != burners || cpu < burners*int64(burnCPU) || mem < burners*burnBytes {
				t.Fatalf("%d burners", len(names))
			}
			if r.Usage.Sampled != sampling {
				if !sampling {
					t.Skip("SKIPPED: this process may not make cgroups here")
				}
				t.Error("sampled numbers are not marked")
			}
			within(t, "CPU time", float64(r.Usage.CPU), float64(cpu))
			within(t, "memory", float64(r.Usage.PeakMemory), float64(mem))
		})
	}
}

// within: the shells and the burners' own runtime are the rest.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got < want*0.95 || got > want*1.10 {
		t.Errorf("%s: measured %.0f, burnt %.0f: %.1f %% off", what, got, want, 100*(got/want-1))
	}
}

// TestReusedPlacesStartAtZero: what one attempt used is not the next one's.
func TestReusedPlacesStartAtZero(t *testing.T) {
	w := newWorker(t, worker.Config{})
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := lineOrder(dir, fmt.Sprintf(`"%[1]s" & "%[1]s" & wait`, exe), burnVar+"="+dir)
	o.Task.PassThrough = []string{burnVar}
	big := w.Execute(t.Context(), o, new(bytes.Buffer))
	small := w.Execute(t.Context(), lineOrder(dir, "true"), new(bytes.Buffer))
	if !big.OK() || !small.OK() {
		t.Fatalf("%+v\n%+v", big, small)
	}
	if small.Usage.PeakMemory > big.Usage.PeakMemory/10 || small.Usage.CPU > big.Usage.CPU/4 {
		t.Errorf("first %+v, then %+v", big.Usage, small.Usage)
	}
}

// TestReadingFilesIsNoMemory: the kernel's cache of files is not the task's.
func TestReadingFilesIsNoMemory(t *testing.T) {
	w := newWorker(t, worker.Config{})
	dir := t.TempDir()
	r := w.Execute(t.Context(), lineOrder(dir, `head -c 200000000 /dev/zero > file; cat file > /dev/null`), new(bytes.Buffer))
	if !r.OK() || r.Usage.PeakMemory > 100_000_000 {
		t.Errorf("%+v", r)
	}
}

func BenchmarkTrue(b *testing.B) {
	w, err := worker.New(worker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	o := lineOrder(b.TempDir(), "true")
	for b.Loop() {
		if r := w.Execute(b.Context(), o, new(bytes.Buffer)); !r.OK() {
			b.Fatalf("%+v", r)
		}
	}
}

// BenchmarkBare is the floor: the same line without a worker.
func BenchmarkBare(b *testing.B) {
	for b.Loop() {
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "true"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
