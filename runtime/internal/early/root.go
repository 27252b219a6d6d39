package early

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// The sandbox's root is made in a file system of memory over the first of these
// that is a folder: the process sees that alone, and goes on without the rest.
var newRoots = []string{"/tmp", "/var/tmp", "/run", "/mnt", "/usr"}

// kernelProc is where the kernel's /proc is in the sandbox's; see makeProc.
const kernelProc = "sandbox-proc"

const noFiles = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC

// makeRoot changes the root to an empty one, with /proc and the time zone.
func makeRoot() error {
	newRoot := firstFolder(newRoots)
	if newRoot == "" {
		return errors.New("none of the usual folders is there")
	}
	return inTurn(
		step{"keep mounts from others", func() error {
			return mount("", "/", "", syscall.MS_SLAVE|syscall.MS_REC)
		}},
		step{"mount " + newRoot, func() error { return mount("runsc-root", newRoot, "tmpfs", noFiles) }},
		step{"make etc", func() error { return os.Mkdir(newRoot+"/etc", 0o755) }},
		step{"copy the time zone", func() error {
			_ = copyFile(newRoot+"/etc/localtime", "/etc/localtime") // without it, it is UTC
			return nil
		}},
		step{"make /proc", func() error { return makeProc(newRoot + "/proc") }},
		step{"make it read-only", func() error {
			return mount("", newRoot, "", syscall.MS_REMOUNT|syscall.MS_RDONLY|syscall.MS_BIND)
		}},
		step{"change the root", func() error { return changeRoot(newRoot) }},
	)
}

// firstFolder is the first that is a folder, "" when none is. A link is none.
func firstFolder(dirs []string) string {
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// makeProc makes a /proc of the few files that gVisor reads.
func makeProc(procDir string) error {
	steps := []step{
		{"make it", func() error { return os.Mkdir(procDir, 0o755) }},
		{"mount it", func() error { return mount("runsc-proc", procDir, "tmpfs", noFiles) }},
		{"make the kernel's", func() error { return os.Mkdir(procDir+"/"+kernelProc, 0o777) }},
		{"mount the kernel's", func() error {
			return mount("proc", procDir+"/"+kernelProc, "proc", noFiles|syscall.MS_RDONLY)
		}},
	}
	for _, dir := range []string{"/sys", "/sys/kernel", "/sys/vm"} {
		steps = append(steps, step{"make " + dir, func() error { return os.Mkdir(procDir+dir, 0o755) }})
	}
	for _, file := range []string{"/sys/vm/mmap_min_addr", "/sys/kernel/cap_last_cap"} {
		steps = append(steps, step{"copy " + file, func() error { return copyFile(procDir+file, "/proc"+file) }})
	}
	for _, link := range []string{"self", "cpuinfo"} {
		steps = append(steps, step{"link " + link, func() error {
			return os.Symlink(kernelProc+"/"+link, procDir+"/"+link)
		}})
	}
	return inTurn(append(steps, step{"close it", func() error { return os.Chmod(procDir, 0o111) }})...)
}

// mount mounts on a path that no link leads to.
func mount(source, target, kind string, flags uintptr) error {
	fd, err := syscall.Open(target, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return doing("open "+target, err)
	}
	defer func() { _ = syscall.Close(fd) }()
	opened := "/proc/self/fd/" + strconv.Itoa(fd)
	if leads, err := os.Readlink(opened); err != nil || leads != target {
		return errors.Join(err, errors.New(target+" is a link, to "+leads))
	}
	return syscall.Mount(source, opened, kind, flags, "")
}

// oPath is O_PATH, which the syscall package does not name.
const oPath = 0x200000

// changeRoot makes dir the root and lets go of the old one, which the kernel has
// put over it.
func changeRoot(dir string) error {
	return inTurn(
		step{"go there", func() error { return os.Chdir(dir) }},
		step{"pivot", func() error { return syscall.PivotRoot(".", ".") }},
		step{"unmount the old one", func() error { return syscall.Unmount(".", syscall.MNT_DETACH) }},
	)
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o666)
}
