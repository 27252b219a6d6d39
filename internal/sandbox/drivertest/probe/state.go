//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/life"
)

// The ports of "probe state".
const (
	pollPort  = 4001
	blockPort = 4002
)

// countFile has as many bytes as the count in memory, or one less: its size
// can be looked at while everything is frozen.
const countFile = "/tmp/probe-count"

// unread is what lies in the pipe.
const unread = "written before, read after"

// state is what the probe holds.
type state struct {
	mu      sync.Mutex
	count   int
	heap    []byte
	half    *os.File // read to its middle
	deleted *os.File
	pipe    *os.File // with unread in it
	child   *bufio.Reader
	toChild io.Writer
	broken  error // of the count
}

func serve() error {
	s := &state{}
	if err := s.setUp(); err != nil {
		return err
	}
	poll, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", pollPort))
	if err != nil {
		return err
	}
	block, err := listenBlocking()
	if err != nil {
		return err
	}
	g := life.NewGroup(context.Background())
	g.Go("count", func(ctxT) error { s.counts(); return nil })
	g.Go("blocking", func(ctxT) error { return s.acceptBlocking(g, block) })
	g.Go("polled", func(ctxT) error {
		for {
			conn, err := poll.Accept()
			if err != nil {
				return err
			}
			g.Go("connection", func(ctxT) error { s.talk(conn); return nil })
		}
	})
	return g.Wait()
}

func (s *state) setUp() error {
	if err := os.MkdirAll("/tmp", 0o777); err != nil {
		return err
	}
	if err := os.WriteFile("/tmp/probe-half", []byte("first half|second half"), 0o644); err != nil {
		return err
	}
	var err error
	if s.half, err = os.Open("/tmp/probe-half"); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.half, make([]byte, len("first half|"))); err != nil {
		return err
	}
	if s.deleted, err = os.Create("/tmp/probe-deleted"); err != nil {
		return err
	}
	if _, err := s.deleted.WriteString("still here"); err != nil {
		return err
	}
	if err := os.Remove("/tmp/probe-deleted"); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if _, err := w.WriteString(unread); err != nil {
		return err
	}
	s.pipe = r
	return s.startChild()
}

func (s *state) startChild() error {
	cmd := exec.Command("/proc/self/exe", "child")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.toChild, s.child = in, bufio.NewReader(out)
	return cmd.Start()
}

// child answers each line with how many it had, and who it is.
func child() error {
	lines := bufio.NewScanner(os.Stdin)
	for n := 1; lines.Scan(); n++ {
		fmt.Println(n, os.Getpid(), os.Getppid())
	}
	return lines.Err()
}

func (s *state) counts() {
	f, err := os.Create(countFile)
	for {
		s.mu.Lock()
		s.count++
		if err == nil {
			err = f.Truncate(int64(s.count))
		}
		s.broken = err
		s.mu.Unlock()
		time.Sleep(tick)
	}
}

// talk answers a connection's lines.
func (s *state) talk(conn io.ReadWriteCloser) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		answer, err := s.answer(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error: " + err.Error()
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return
		}
	}
}

func (s *state) answer(words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("no question")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch words[0] {
	case "count":
		return strconv.Itoa(s.count), s.broken
	case "heap":
		return s.fill(words[1])
	case "sum":
		return s.sum(), nil
	case "half":
		b, err := io.ReadAll(s.half)
		return string(b), err
	case "deleted":
		b, err := io.ReadAll(io.NewSectionReader(s.deleted, 0, 1<<20))
		return string(b), err
	case "change-deleted":
		_, err := s.deleted.WriteAt([]byte(words[1]), 0)
		return "done", err
	case "pipe":
		b := make([]byte, len(unread))
		_, err := io.ReadFull(s.pipe, b)
		return string(b), err
	case "child":
		if _, err := fmt.Fprintln(s.toChild); err != nil {
			return "", err
		}
		line, err := s.child.ReadString('\n')
		return strings.TrimSpace(line), err
	case "write":
		return "done", os.WriteFile(words[1], []byte(words[2]), 0o644)
	case "read":
		b, err := os.ReadFile(words[1])
		if errors.Is(err, os.ErrNotExist) {
			return "nothing", nil
		}
		return string(b), err
	case "say":
		_, err := fmt.Println(words[1])
		return "done", err
	case "pid":
		return strconv.Itoa(os.Getpid()), nil
	case "hostname":
		return os.Hostname()
	}
	return "", fmt.Errorf("unknown question %q", words[0])
}

// fill takes memory and fills it with what no page cache and no compression
// makes small.
func (s *state) fill(mib string) (string, error) {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return "", err
	}
	s.heap = make([]byte, n<<20)
	x := uint64(88172645463325252)
	for i := 0; i+8 <= len(s.heap); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(s.heap[i:], x)
	}
	return s.sum(), nil
}

func (s *state) sum() string {
	return fmt.Sprintf("%d %08x", len(s.heap)>>20, crc32.Checksum(s.heap, crc32.MakeTable(crc32.Castagnoli)))
}

// listenBlocking makes a listening socket that the poller does not know.
func listenBlocking() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: blockPort, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, 16)
}

func (s *state) acceptBlocking(g *life.Group, fd int) error {
	for {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		g.Go("connection", func(ctxT) error { s.talk(blocking(conn)); return nil })
	}
}

// blocking is a socket read and written by blocking calls.
type blocking int

func (b blocking) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(b), p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (b blocking) Write(p []byte) (int, error) {
	for {
		n, err := unix.Write(int(b), p)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (b blocking) Close() error { return unix.Close(int(b)) }
