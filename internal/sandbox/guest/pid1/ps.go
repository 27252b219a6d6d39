//go:build linux

package pid1

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"brood/internal/sandbox/guest/proto"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 for
// every program that asks (and in gVisor).
const tick = time.Second / 100

func (s *Server) ps() (proto.PsResult, error) {
	all, err := s.cfg.OS.Processes()
	if err != nil {
		return proto.PsResult{}, err
	}
	result := proto.PsResult{Processes: []proto.Process{}}
	var buf statBuffer
	if stat, err := readStat("/proc/self/stat", &buf); err == nil {
		if p, _, ok := parseStat(stat); ok {
			all = append(all, Proc{PID: os.Getpid(), PPID: p.PPID, State: p.State})
		}
	}
	slices.SortFunc(all, func(a, b Proc) int { return a.PID - b.PID })
	told := 0
	for _, p := range all {
		row := proto.Process{PID: p.PID, PPID: p.PPID, State: string(p.State)}
		accountFor(&row, &buf)
		if told < maxArgvAll {
			row.Argv = argv(p.PID)
			for _, a := range row.Argv {
				told += len(a)
			}
		}
		result.Processes = append(result.Processes, row)
	}
	return result, nil
}

// accountFor adds what a process uses and whose it is; nothing when it has
// ended meanwhile.
func accountFor(row *proto.Process, buf *statBuffer) {
	dir := "/proc/" + strconv.Itoa(row.PID)
	if stat, err := readStat(dir+"/stat", buf); err == nil {
		row.CPU, row.Memory = parseUsage(stat)
	}
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) == nil { // it belongs to the process's user
		row.UID = int(st.Uid)
	}
}

// parseUsage takes processor time and resident bytes from a line of
// /proc/PID/stat.
func parseUsage(stat []byte) (cpu time.Duration, memory uint64) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return 0, 0
	}
	number := func(i int) uint64 { // from the third field of proc(5) on
		n, err := strconv.ParseUint(string(fields[i]), 10, 63)
		if err != nil {
			return 0
		}
		return n
	}
	return time.Duration(number(11)+number(12)) * tick, number(21) * uint64(os.Getpagesize())
}
