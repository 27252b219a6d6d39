package checkpoint

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisMachine returns what is known of this machine without asking anybody:
// architecture and processor features. The caller adds the rest.
func ThisMachine() Machine {
	return Machine{Arch: runtime.GOARCH, CPU: cpuFeatures("/proc/cpuinfo")}
}

// NeedsHere returns what a checkpoint made now on this machine needs.
func NeedsHere() Needs {
	n := Needs{Arch: runtime.GOARCH, CPU: cpuFeatures("/proc/cpuinfo")}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		n.Kernel = string(u.Release[:bytes.IndexByte(append(u.Release[:], 0), 0)])
	}
	return n
}

// instructionSets are the beginnings of the names of those x86 features that
// programs look for and then use for good. The kernel lists many more, some
// of its own invention: a new kernel that drops one of those must not make a
// checkpoint useless.
var instructionSets = []string{
	"3dnow", "abm", "adx", "aes", "amx_", "avx", "bmi", "clflush", "clwb", "cx16", "erms", "f16c", "fma", "fsgsbase", "fsrm",
	"fxsr", "gfni", "hle", "lahf_lm", "mmx", "movbe", "movdir", "ospke", "pclmulqdq", "pku", "pni", "popcnt", "prefetchw", "rdpid",
	"rdrand", "rdseed", "rdtscp", "rtm", "serialize", "sha", "sse", "ssse3", "tbm", "vaes", "vpclmulqdq", "waitpkg", "xop", "xsave",
}

// cpuFeatures reads the features of the first processor; none where there is
// no such file.
func cpuFeatures(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "flags":
			return slices.DeleteFunc(sortedWords(value), func(f string) bool {
				return !slices.ContainsFunc(instructionSets, func(p string) bool { return strings.HasPrefix(f, p) })
			})
		case "Features": // arm64: instruction sets only
			return sortedWords(value)
		}
	}
	return nil
}

func sortedWords(s string) []string {
	words := strings.Fields(s)
	slices.Sort(words)
	return slices.Compact(words)
}

// bootID identifies this boot of the machine; "" where the system does not
// tell.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
