package early

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	setUpRoot = "--setup-root"
	applyCaps = "--apply-caps=true"
)

// parseBoot knows a sandbox's first start as the launcher asks for it, and
// returns the second one's arguments but for what the first finds out.
func parseBoot(argv []string) (second []string, ok bool) {
	if len(argv) == 0 || argv[0] != "runsc-sandbox" {
		return nil, false
	}
	at := slices.Index(argv, "boot")
	if at < 0 {
		return nil, false
	}
	for _, flag := range argv[1:at] {
		if !slices.Contains(ConfigFlags, flag) && !strings.HasPrefix(flag, "--root=") {
			return nil, false
		}
	}
	flags := argv[at+1:]
	if !slices.Contains(flags, setUpRoot) || !slices.Contains(flags, applyCaps) || slices.ContainsFunc(flags, another) {
		return nil, false
	}
	second = slices.Clone(argv)
	for i := at + 1; i < len(second); i++ {
		switch second[i] {
		case setUpRoot:
			second[i] = "--setup-root=false"
		case applyCaps:
			second[i] = "--apply-caps=false"
		}
	}
	return second, true
}

// another tells a flag that asks the first start for more than is done here.
func another(flag string) bool {
	name, _, _ := strings.Cut(flag, "=")
	switch name {
	case "--attached", "--sync-userns-fd", "--uid", "--gid", "--proc-mount-sync-fd",
		"--product-name", "--host-thp-shmem-enabled", "--host-thp-defrag":
		return true
	}
	return false
}

// firstStart makes the sandbox's surroundings and replaces this process by the
// sandbox; it returns when that failed.
func firstStart(second []string) error {
	found := lookAround()
	if err := inTurn(
		step{"make the sandbox's root", makeRoot},
		step{"start what unmounts /proc", func() error {
			fd, err := startUmounter()
			found = append(found, "--proc-mount-sync-fd="+strconv.Itoa(fd))
			return err
		}},
		step{"give up capabilities", giveUpCaps},
	); err != nil {
		return err
	}
	at := slices.Index(second, "boot") + 1
	return doing("start the sandbox", syscall.Exec(selfPath, slices.Insert(second, at, found...), os.Environ()))
}

// lookAround reads of this machine what the sandbox cannot read any more. What
// is not there gVisor does without.
func lookAround() (flags []string) {
	if b, err := os.ReadFile("/sys/devices/virtual/dmi/id/product_name"); err == nil {
		flags = append(flags, "--product-name="+string(bytes.TrimSpace(b)))
	}
	for _, f := range []struct{ flag, file string }{
		{"--host-thp-shmem-enabled=", "shmem_enabled"},
		{"--host-thp-defrag=", "defrag"},
	} {
		b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/" + f.file)
		if err != nil {
			continue
		}
		// The choice is the word in brackets.
		if _, rest, ok := bytes.Cut(b, []byte("[")); ok {
			if word, _, ok := bytes.Cut(rest, []byte("]")); ok {
				flags = append(flags, f.flag+string(word))
			}
		}
	}
	return flags
}
