package mounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is one line of /proc/self/mountinfo, as far as it matters.
type mountPoint struct {
	point string
	flags uintptr // MS_*, those a remount has to repeat
}

// mountsAt returns the mounts at and below path, parents first.
func mountsAt(path string) ([]mountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseMounts(f, path)
}

func parseMounts(r io.Reader, path string) ([]mountPoint, error) {
	var found []mountPoint
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, fmt.Errorf("mountinfo: line of %d fields", len(fields))
		}
		point := unescape(fields[4])
		if point == path || strings.HasPrefix(point, strings.TrimSuffix(path, "/")+"/") {
			found = append(found, mountPoint{point: point, flags: mountFlags(fields[5])})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].point < found[j].point })
	return found, lines.Err()
}

var flagNames = map[string]uintptr{
	"ro":         unix.MS_RDONLY,
	"nosuid":     unix.MS_NOSUID,
	"nodev":      unix.MS_NODEV,
	"noexec":     unix.MS_NOEXEC,
	"noatime":    unix.MS_NOATIME,
	"nodiratime": unix.MS_NODIRATIME,
	"relatime":   unix.MS_RELATIME,
}

func mountFlags(options string) uintptr {
	var flags uintptr
	for name := range strings.SplitSeq(options, ",") {
		flags |= flagNames[name]
	}
	return flags
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.ContainsRune(s, '\\') {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
