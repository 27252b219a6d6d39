//go:build linux

package pid1

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// kernelThread is PF_KTHREAD of the kernel's sched.h.
	kernelThread = 0x00200000
	// maxArgv bounds what ps reads of one process's arguments in bytes, and
	// maxArgvAll what it tells of all; later ones are listed without.
	maxArgv    = 4 << 10
	maxArgvAll = 1 << 20
)

// Hostname reads the host name from the kernel.
func (System) Hostname() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Nodename[:]), nil
}

// StepClock sets the wall clock relative to what it shows.
func (System) StepClock(by time.Duration) error {
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// Processes lists every process of this PID namespace but the caller.
func (System) Processes() ([]Proc, error) {
	all, err := ListProcesses()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return slices.DeleteFunc(all, func(p Proc) bool { return p.PID == self }), nil
}

// ListProcesses reads /proc, leaving out threads of the kernel.
func ListProcesses() ([]Proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Proc
	var buf statBuffer
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := readStat("/proc/"+name+"/stat", &buf)
		if err != nil {
			continue // it ended meanwhile
		}
		if p, flags, ok := parseStat(stat); ok && flags&kernelThread == 0 {
			p.PID = pid
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Proc) int { return a.PID - b.PID })
	return all, nil
}

// statBuffer holds a line of /proc/PID/stat: some fifty numbers and a name.
type statBuffer [2 << 10]byte

// readStat reads a line with as few system calls as there can be: a freeze
// reads each process several times, and the user waits.
func readStat(path string, buf *statBuffer) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.Read(fd, buf[:])
	if e := unix.Close(fd); err == nil {
		err = e
	}
	return buf[:max(n, 0)], err
}

// parseStat takes what is needed from a line of /proc/PID/stat. The command's
// name in it may contain spaces and parentheses.
func parseStat(stat []byte) (p Proc, flags uint64, ok bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return Proc{}, 0, false
	}
	fields := bytes.Fields(stat[i+1:])
	if len(fields) < 18 || len(fields[0]) != 1 {
		return Proc{}, 0, false
	}
	var numbers [3]int // parent, group, session
	for i := range numbers {
		n, err := strconv.Atoi(string(fields[1+i]))
		if err != nil {
			return Proc{}, 0, false
		}
		numbers[i] = n
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	if err != nil {
		return Proc{}, 0, false
	}
	threads, err := strconv.Atoi(string(fields[17]))
	if err != nil {
		return Proc{}, 0, false
	}
	return Proc{PPID: numbers[0], Group: numbers[1], Session: numbers[2], State: fields[0][0], Threads: threads}, flags, true
}

// quiet reports whether a thread in this state runs no more of its program
// until it is continued: stopped, traced, dead, or in a wait of the kernel's
// that ends in the stop that is due (D, a parent in vfork for one).
func quiet(state byte) bool {
	switch state {
	case 'T', 't', 'Z', 'X', 'D':
		return true
	}
	return false
}

// still reports whether all threads of a process are quiet. One that is gone
// is.
func still(pid int) bool {
	var buf statBuffer
	stat, err := readStat("/proc/"+strconv.Itoa(pid)+"/stat", &buf)
	if err != nil {
		return gone(err)
	}
	p, _, ok := parseStat(stat)
	p.PID = pid
	return ok && p.still()
}

// still is the same for a process that was just looked at.
func (p Proc) still() bool {
	return quiet(p.State) && (p.Threads <= 1 || threadsStill(p.PID))
}

func threadsStill(pid int) bool {
	var buf statBuffer
	base := "/proc/" + strconv.Itoa(pid) + "/task/"
	dir, err := os.Open(base)
	if err != nil {
		return gone(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return gone(err)
	}
	for _, name := range names {
		stat, err := readStat(base+name+"/stat", &buf)
		if err != nil {
			continue
		}
		if p, _, ok := parseStat(stat); !ok || !quiet(p.State) {
			return false
		}
	}
	return true
}

// gone reports whether an error of /proc means that the process is no more:
// before it is looked up, or after.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// argv reads a process's arguments; those of a zombie are gone.
func argv(pid int) []string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer f.Close()
	buf := make([]byte, maxArgv)
	n, _ := f.Read(buf) // nothing read is nothing to show
	line := bytes.TrimRight(buf[:n], "\x00")
	if len(line) == 0 {
		return nil
	}
	var args []string
	for part := range bytes.SplitSeq(line, []byte{0}) {
		args = append(args, string(part))
	}
	return args
}
