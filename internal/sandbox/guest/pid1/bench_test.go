//go:build linux

package pid1_test

import (
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/sandbox/guest"
)

// BenchmarkExecStdout is how much of a program's output comes to the host in a
// second, through guest, channel and client, beside the same program at the end
// of a bare pipe: x-pipe is how many times as long it takes.
func BenchmarkExecStdout(b *testing.B) {
	const size = 64 << 20
	program := sh(fmt.Sprintf("head -c %d /dev/zero", size))
	x := newBox(b)
	c := x.connect()
	var through, bare time.Duration
	b.SetBytes(size)
	n := 0
	for b.Loop() {
		began, called := time.Now(), id.Exec(fmt.Sprint(n))
		run, err := c.Exec(b.Context(), guest.ExecArgs{ID: string(called), Command: program})
		check(b, err)
		var got written
		_, err = run.CopyTo(&got, io.Discard)
		check(b, err)
		run.Close()
		check(b, c.ForgetExec(b.Context(), called))
		through += time.Since(began)

		b.StopTimer()
		began = time.Now()
		var piped written
		pipe := exec.CommandContext(b.Context(), program.Argv[0], program.Argv[1:]...)
		pipe.Stdout = &piped
		check(b, pipe.Run())
		bare += time.Since(began)
		if got != size || piped != size {
			b.Fatalf("%d and %d bytes of %d", got, piped, size)
		}
		n++
		b.StartTimer()
	}
	b.ReportMetric(float64(through)/float64(bare), "x-pipe")
}

// written counts bytes.
type written int64

func (w *written) Write(p []byte) (int, error) { *w += written(len(p)); return len(p), nil }
