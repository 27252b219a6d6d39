package image

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// mountsBelow returns the mount points of this process's namespace that lie
// in dir or are dir.
func mountsBelow(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var below []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		p := unescape.Replace(fields[4])
		if p == dir || strings.HasPrefix(p, dir+"/") {
			below = append(below, p)
		}
	}
	return below, lines.Err()
}
