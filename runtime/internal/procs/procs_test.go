package procs

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helper starts a process that looks like one of gVisor's, and sleeps.
func helper(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skipf("SKIPPED: no sleep here: %v", err)
	}
	// sleep takes several durations and adds them up.
	cmd := &exec.Cmd{Path: sleep, Args: argv}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for len(CommandLine(cmd.Process.Pid)) == 0 || CommandLine(cmd.Process.Pid)[0] != argv[0] {
		if !Alive(cmd.Process.Pid) {
			t.Fatal("the helper ended")
		}
	}
	return cmd
}

func TestOnlyTheOneMeantIsKilled(t *testing.T) {
	cmd := helper(t, "runsc-sandbox", "600", "601")
	pid := cmd.Process.Pid
	for name, other := range map[string]Identity{
		"another container": IsSandbox("600"),
		"a file server":     IsGofer("601"),
	} {
		Kill(pid, other)
		if !KillAndWait(pid, other) {
			t.Errorf("%s: the child is not ours any more", name)
		}
		if !Alive(pid) {
			t.Fatalf("%s: killed", name)
		}
	}
	if !SandboxIDs()["601"] {
		t.Error("the sandbox is not found")
	}
	if !KillAndWait(pid, IsSandbox("601")) {
		t.Error("our own child stays ours until it is reaped")
	}
	if Alive(pid) {
		t.Error("it lives on")
	}
	// Now it is a zombie: waiting for it again ends at once.
	if !KillAndWait(pid, IsSandbox("601")) {
		t.Error("a zombie is ours")
	}
	if _, err := cmd.Process.Wait(); err != nil {
		t.Error(err)
	}
	if KillAndWait(pid, IsSandbox("601")) || IsOurChild(pid) || Alive(pid) {
		t.Error("what is reaped is nobody's")
	}
}

func TestKillAllReaps(t *testing.T) {
	sandbox := helper(t, "runsc-sandbox", "600", "603")
	gofer := helper(t, "runsc-gofer", "604", "600")
	stranger := helper(t, "sleep", "604", "603")
	if err := KillAll("603", "604"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{sandbox, gofer} {
		if unix.Kill(c.Process.Pid, 0) == nil {
			t.Errorf("%v is there", c.Args)
		}
	}
	if !Alive(stranger.Process.Pid) {
		t.Error("a stranger with the same words was killed")
	}
}

func TestProcessOneIsNeverKilled(t *testing.T) {
	all := func([]string) bool { return true }
	for _, pid := range []int{-1, 0, 1} {
		if fd := pinAndKill(pid, all); fd >= 0 {
			t.Fatalf("process %d was taken", pid)
		}
	}
}

func TestHostPID(t *testing.T) {
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proc.Close() }()
	if got := HostPID(int(proc.Fd()), os.Getpid()); got != os.Getpid() {
		t.Errorf("in one namespace the number stays, got %d", got)
	}
	if got := HostPID(int(proc.Fd()), 0); got != 0 {
		t.Errorf("no process is %d", got)
	}
	cmd := helper(t, "sleep", strconv.Itoa(int(time.Hour.Seconds())))
	if got := HostPID(int(proc.Fd()), cmd.Process.Pid); got != cmd.Process.Pid {
		t.Errorf("got %d, want %d", got, cmd.Process.Pid)
	}
}
