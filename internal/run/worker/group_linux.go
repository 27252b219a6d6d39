package worker

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// groupLives says whether a process group has members that run. One that ended
// and was not waited for does not, but is a member to kill(2); and an orphan's
// new parent may take its time.
func groupLives(g int) bool {
	if syscall.Kill(-g, 0) != nil {
		return false
	}
	d, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended
		}
		if group, runs := groupOfStat(b); runs && group == g {
			return true
		}
	}
	return false
}

// groupOfStat reads the state and the process group: the third and the fifth
// field, behind the program's name in parentheses.
func groupOfStat(b []byte) (group int, runs bool) {
	at := bytes.LastIndexByte(b, ')')
	if at < 0 {
		return 0, false
	}
	f := bytes.Fields(b[at+1:])
	if len(f) < 3 {
		return 0, false
	}
	group, err := strconv.Atoi(string(f[2]))
	return group, err == nil && !bytes.Equal(f[0], []byte("Z")) && !bytes.Equal(f[0], []byte("X"))
}
