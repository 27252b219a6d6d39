package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// burnVar makes this test's program burn instead of testing: it names the
// folder to meet the others in.
const burnVar = "BURN_IN"

const (
	burners   = 2
	burnBytes = 150 << 20
	burnCPU   = 200 * time.Millisecond
)

// burn holds memory while all burners do, burns CPU time, and writes down how
// much CPU time it had in all, and how much memory of its own it has: more than
// it asked for, where the race detector watches.
func burn(dir string) {
	mem := make([]byte, burnBytes)
	for i := 0; i < len(mem); i += 512 {
		mem[i] = byte(i>>9) | 1
	}
	own := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	name := filepath.Join(dir, "burner-"+strconv.Itoa(os.Getpid()))
	write := func(s string) {
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			panic(err)
		}
	}
	write("")
	tick := time.NewTicker(time.Millisecond)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
		if all, _ := filepath.Glob(filepath.Join(dir, "burner-*")); len(all) == burners {
			break
		}
	}
	sum := 0
	for end := own() + burnCPU; own() < end; {
		for i := range 100_000 {
			sum += i * int(mem[i])
		}
	}
	if sum == 0 {
		panic("nothing was burnt")
	}
	write(fmt.Sprintln(int64(own()), ownMemory()))
	runtime.KeepAlive(mem)
}

// ownMemory reads RssAnon, in bytes.
func ownMemory() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				panic(err)
			}
			return n << 10
		}
	}
	panic("no RssAnon in /proc/self/status")
}
