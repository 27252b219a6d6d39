package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/early"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
)

// newConfig returns gVisor's configuration of one container. Checkpoint and
// restore have to agree on nearly all of it, so it depends on nothing else.
func newConfig(debugDir string) (*config.Config, error) {
	args := append([]string{"--root=" + stateRoot}, early.ConfigFlags...)
	if debugDir != "" {
		args = append(args, "--debug=true", "--debug-log="+debugDir+"/", "--debug-log-format=text")
	}
	fs := flag.NewFlagSet("launcher", flag.ContinueOnError)
	config.RegisterFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("set gVisor's flags: %w", err)
	}
	return config.NewFromFlags(fs)
}

// newSpec returns the OCI description. Its mounts are fixed: a container can
// only be restored into one with the same mounts.
func newSpec(c *launch.Create, root mountedRoot) *specs.Spec {
	cwd := c.Cwd
	if cwd == "" {
		cwd = "/"
	}
	return &specs.Spec{
		Version:     specs.Version,
		Hostname:    c.Hostname,
		Annotations: root.annotations,
		Root:        &specs.Root{Path: root.path},
		Process: &specs.Process{
			Args:         c.Argv,
			Env:          c.Env,
			Cwd:          cwd,
			Capabilities: allCapabilities(),
			// What a login session usually has; without it the launcher's own
			// limit would be copied.
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 1 << 20}},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
}

// allCapabilities is every capability gVisor knows, in one order always. They
// are those of the guest's own kernel and give nothing on this machine.
func allCapabilities() *specs.LinuxCapabilities {
	names := slices.Sorted(slices.Values(specutils.AllCapabilities().Bounding))
	return &specs.LinuxCapabilities{
		Bounding: names, Effective: names, Inheritable: names, Permitted: names, Ambient: names,
	}
}

// writeBundle writes spec where gVisor's helpers read it from.
func writeBundle(dir string, spec *specs.Spec) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}
