// Command inside answers questions about the filesystem it runs on, one line
// each, over descriptor 3. Started with an argument it only says so.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Print("ran " + os.Args[1])
		return
	}
	channel := os.NewFile(3, "channel")
	lines := bufio.NewScanner(channel)
	for lines.Scan() {
		verb, arg, _ := strings.Cut(lines.Text(), " ")
		answer, err := answer(verb, arg)
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintf(channel, "%q\n", answer)
	}
}

func answer(verb, arg string) (string, error) {
	switch verb {
	case "read":
		b, err := os.ReadFile(arg)
		return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)), err
	case "mmap":
		return mapped(arg)
	case "exec":
		out, err := exec.Command(arg, "directly").Output()
		return string(out), err
	case "stat":
		var st syscall.Stat_t
		err := syscall.Lstat(arg, &st)
		return fmt.Sprintf("%o %d:%d links %d mtime %d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec), err
	case "same":
		a, b, _ := strings.Cut(arg, " ")
		fa, err := os.Stat(a)
		if err != nil {
			return "", err
		}
		fb, err := os.Stat(b)
		return fmt.Sprint(os.SameFile(fa, fb)), err
	case "list":
		entries, err := os.ReadDir(arg)
		return fmt.Sprint(len(entries)), err
	case "link":
		return os.Readlink(arg)
	case "write":
		if err := os.WriteFile(arg, []byte("written"), 0o644); err != nil {
			return "", err
		}
		b, err := os.ReadFile(arg)
		return string(b), err
	}
	return "", fmt.Errorf("unknown question %q", verb)
}

func mapped(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)), nil
}
