// Command guest is process 1 of the sandboxes in tests. It counts in memory
// and answers requests, a line each, on descriptor 3.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// heap is what the alloc request fills, kept alive for the checkpoint.
var heap []byte

func main() {
	signal.Ignore(syscall.SIGPIPE)
	var count atomic.Int64
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for {
			count.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	})
	fmt.Fprintln(os.Stdout, "guest is up")
	channel := os.NewFile(3, "channel")
	lines := bufio.NewReader(channel)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		fmt.Fprintln(channel, answer(strings.Fields(line), &count))
	}
}

func answer(words []string, count *atomic.Int64) string {
	if len(words) == 0 {
		return "resync"
	}
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "count":
		return fmt.Sprint(count.Load())
	case "say":
		fmt.Fprintln(os.Stdout, strings.Join(words[1:], " "))
		return "ok"
	case "write":
		return result("ok", os.WriteFile(arg(1), []byte(arg(2)), 0o644))
	case "read":
		b, err := os.ReadFile(arg(1))
		return result(strings.TrimSpace(string(b)), err)
	case "list":
		entries, err := os.ReadDir(arg(1))
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return result(strings.Join(names, " "), err)
	case "hostname":
		if arg(1) != "" {
			if err := syscall.Sethostname([]byte(arg(1))); err != nil {
				return result("", err)
			}
		}
		h, err := os.Hostname()
		return result(h, err)
	case "mount":
		if err := os.MkdirAll(arg(1), 0o755); err != nil {
			return result("", err)
		}
		return result("ok", syscall.Mount("tmpfs", arg(1), "tmpfs", 0, ""))
	case "fd":
		n, err := strconv.Atoi(arg(1))
		if err != nil {
			return result("", err)
		}
		b := make([]byte, 64)
		k, err := syscall.Pread(n, b, 0)
		if err != nil {
			return result("", err)
		}
		return strings.TrimSpace(string(b[:k]))
	case "alloc":
		n, err := strconv.Atoi(arg(1))
		heap = make([]byte, n<<20)
		for i := range heap {
			heap[i] = byte(i>>12) ^ byte(i)
		}
		return result("ok", err)
	case "sum":
		sum := uint64(14695981039346656037)
		for _, b := range heap {
			sum = (sum ^ uint64(b)) * 1099511628211
		}
		runtime.KeepAlive(heap)
		return fmt.Sprint(sum)
	case "limit":
		var r syscall.Rlimit
		err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
		return result(fmt.Sprint(r.Max), err)
	case "stdin":
		b, err := io.ReadAll(os.Stdin)
		return result("stdin:"+string(b), err)
	case "exit":
		n, _ := strconv.Atoi(arg(1))
		os.Exit(n)
	}
	return "error: unknown request"
}

func result(text string, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}
