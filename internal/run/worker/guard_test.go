package worker_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"brood/internal/run/worker"
)

// killedVar makes this test's program a run to be killed: it names the folder
// that it works in.
const killedVar = "KILLED_IN"

func killed(dir string) {
	w, err := worker.New(worker.Config{})
	if err != nil {
		panic(err)
	}
	for range 3 { // groups that came and went
		w.Execute(context.Background(), lineOrder(dir, "true"), io.Discard)
	}
	// The guard hears of a group once it has begun, not before.
	r := w.Execute(context.Background(), lineOrder(dir, "sleep 0.3; sleep 1000 & echo $! >inner; echo $$ >outer; wait"), io.Discard)
	fmt.Println(r)
}

// TestNothingOutlivesAKilledRun: what a task does when its run is gone nobody
// waits for, and the next run may be at the same files.
func TestNothingOutlivesAKilledRun(t *testing.T) {
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), killedVar+"="+dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	inner, outer := pidIn(t, filepath.Join(dir, "inner")), pidIn(t, filepath.Join(dir, "outer"))
	if !alive(inner) || !alive(outer) {
		t.Fatal("the task does not run")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	eventually(t, "the end of the task", func() bool { return !alive(inner) && !alive(outer) })
}
