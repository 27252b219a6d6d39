package forks

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/config"
	"brood/internal/edge/cli"
)

// createFlags are the options of a new sandbox.
type createFlags struct {
	name, workdir, user, memory, network string
	cpus                                 uint32
	env, mounts, ports, services         []string
	waits, labels                        []string
	readyTimeout, ttl, idleTimeout       time.Duration
	forkable, ephemeral, keepOnFailure   bool
}

func (f *createFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.name, "name", "n", "", "`name`: a-z, 0-9 and -, 63 at most (default: one is drawn)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "`NAME=VALUE` for the command's environment; NAME alone passes on yours; repeatable")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "working `folder` of the command (default: the image's, else /)")
	flags.StringVarP(&f.user, "user", "u", "", "`user` of the command: name or uid, with :group if wanted (default: the image's, else root)")
	flags.Uint32Var(&f.cpus, "cpus", 0, "vCPUs it may use; 0: all")
	flags.StringVar(&f.memory, "memory", "", "memory it may use, as `size` such as 512M or 2G; a bare number is MiB (default: no limit)")
	flags.StringArrayVar(&f.mounts, "mount", nil, "`SRC:DST[:ro]`: show this machine's SRC inside at DST; host image only; repeatable")
	flags.StringArrayVarP(&f.ports, "port", "p", nil, "`port` inside that is of interest; repeatable")
	flags.StringArrayVar(&f.services, "service", nil, "`NAME=PORT`: a service inside; repeatable")
	flags.StringArrayVar(&f.waits, "wait", nil, "ready when this `probe` succeeds: tcp:PORT, http:PORT/path, the same with a service's name, or cmd:COMMAND for a shell; repeatable")
	flags.DurationVar(&f.readyTimeout, "ready-timeout", 0, "how long the probes may take, such as 90s (default: 5m)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "`NAME=VALUE`: a note on it; repeatable")
	flags.StringVar(&f.network, "network", "", "`network`: none or default (default: what this machine can do)")
	flags.BoolVar(&f.forkable, "forkable", true, "whether it can be checkpointed and forked")
	flags.DurationVar(&f.ttl, "ttl", 0, "remove it this long after it was made, such as 2h (default: never)")
	flags.DurationVar(&f.idleTimeout, "idle-timeout", 0, "remove it when for this long no command was about it and nothing worked in it, such as 30m (default: never)")
	flags.BoolVar(&f.ephemeral, "ephemeral", false, "remove it when the calling shell ends")
	flags.BoolVar(&f.keepOnFailure, "keep-on-failure", false, "keep it, to look at it, when it does not become ready")
}

// request is what the flags ask for.
func (f *createFlags) request(image string, command []string) (*broodv1.CreateSandboxRequest, error) {
	create := &daemonv1.CreateSandboxRequest{
		Name: f.name, Cpus: f.cpus, Network: f.network, Command: command,
		Forkable: proto.Bool(f.forkable), KeepOnFailure: f.keepOnFailure, Services: map[string]uint32{},
	}
	req := &broodv1.CreateSandboxRequest{Create: create, Workdir: f.workdir, User: f.user}
	if create.Name == "" { // without a name the daemon would make it ephemeral
		create.Name = "sb-" + id.Random(3)
	}
	if f.ephemeral {
		create.OwnerPid = uint32(os.Getppid())
	}
	var err error
	if create.Image, err = imageRef(image); err != nil {
		return nil, err
	}
	if create.Env, err = environment(f.env); err != nil {
		return nil, err
	}
	if create.Labels, err = pairs("--label", f.labels); err != nil {
		return nil, err
	}
	if f.memory != "" {
		if create.MemoryMb, err = config.ParseMiB("--memory", f.memory); err != nil {
			return nil, err
		}
	}
	if req.Mounts, err = mounts(f.mounts); err != nil {
		return nil, err
	}
	if err := f.reach(create); err != nil {
		return nil, err
	}
	if err := f.probes(req); err != nil {
		return nil, err
	}
	return req, f.times(req)
}

// reach reads ports and services.
func (f *createFlags) reach(create *daemonv1.CreateSandboxRequest) error {
	for _, s := range f.ports {
		p, err := port("--port", s)
		if err != nil {
			return err
		}
		create.Ports = append(create.Ports, p)
	}
	services, err := pairs("--service", f.services)
	if err != nil {
		return err
	}
	for name, s := range services {
		if create.Services[name], err = port("--service "+name, s); err != nil {
			return err
		}
	}
	return nil
}

// probes reads --wait.
func (f *createFlags) probes(req *broodv1.CreateSandboxRequest) error {
	for _, s := range f.waits {
		kind, rest, _ := strings.Cut(s, ":")
		switch {
		case rest == "":
			kind = ""
		case kind == "cmd":
			req.WaitForCommands = append(req.WaitForCommands, &broodv1.CommandProbe{Argv: []string{"sh", "-c", rest}})
			continue
		}
		where, path, slash := strings.Cut(rest, "/")
		if kind != "http" && kind != "tcp" || kind == "tcp" && slash {
			return errs.New(errs.InvalidArgument, "--wait %q is no probe: write tcp:8000, http:8000/path, or cmd:COMMAND", s)
		}
		p, ok := req.Create.Services[where]
		if !ok {
			var err error
			if p, err = port("--wait "+kind, where); err != nil {
				return err
			}
		}
		probe := &daemonv1.ReadinessProbe{Port: p}
		if kind == "http" {
			probe.HttpPath = "/" + path
		}
		req.Create.WaitFor = append(req.Create.WaitFor, probe)
	}
	return nil
}

func (f *createFlags) times(req *broodv1.CreateSandboxRequest) error {
	for _, t := range []struct {
		flag string
		d    time.Duration
		to   **durationpb.Duration
	}{
		{"--ready-timeout", f.readyTimeout, &req.Create.ReadyTimeout},
		{"--ttl", f.ttl, &req.Ttl},
		{"--idle-timeout", f.idleTimeout, &req.IdleTimeout},
	} {
		if t.d < 0 {
			return errs.New(errs.InvalidArgument, "%s %s is negative: write 90s, 10m or 2h", t.flag, t.d)
		}
		if t.d > 0 {
			*t.to = durationpb.New(t.d)
		}
	}
	return nil
}

// imageRef makes the path in an image absolute: the daemon is somewhere else.
// What is no path is left to the daemon.
func imageRef(image string) (string, error) {
	kind, path, prefixed := strings.Cut(image, ":")
	if !prefixed || kind != "dir" && kind != "tar" {
		kind, path = "", image
	}
	local := kind != "" || strings.HasPrefix(path, ".") || strings.HasPrefix(path, "/") || strings.HasPrefix(path, "~/")
	if !local && image != "" && image != "host" { // "app.tar.gz", "build/rootfs"; a bare word may be an image's name
		st, err := os.Stat(path)
		local = err == nil && (st.Mode().IsRegular() || strings.Contains(path, "/"))
	}
	if !local {
		return image, nil
	}
	if below, ok := strings.CutPrefix(path, "~/"); ok {
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", errs.New(errs.InvalidArgument, "image %s: %w", image, err)
		}
		path = filepath.Join(dir, below)
	}
	abs, err := cli.Absolute(path)
	if err != nil {
		return "", errs.New(errs.InvalidArgument, "image %s: %w", image, err)
	}
	if kind != "" {
		abs = kind + ":" + abs
	}
	return abs, nil
}

// mounts reads --mount.
func mounts(specs []string) ([]*broodv1.Mount, error) {
	var all []*broodv1.Mount
	for _, s := range specs {
		parts := strings.Split(s, ":")
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
			return nil, errs.New(errs.InvalidArgument, "--mount %q: write SRC:DST or SRC:DST:ro, with an absolute DST", s)
		}
		src, err := cli.Absolute(parts[0])
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "--mount %q: %w", s, err)
		}
		all = append(all, &broodv1.Mount{Source: src, Target: parts[1], ReadOnly: len(parts) == 3})
	}
	return all, nil
}

// pairs reads NAME=VALUE.
func pairs(flag string, specs []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range specs {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, errs.New(errs.InvalidArgument, "%s %q: write NAME=VALUE", flag, s)
		}
		m[k] = v
	}
	return m, nil
}

// environment reads --env; a name alone is passed on when it is set here.
func environment(specs []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range specs {
		k, v, ok := strings.Cut(s, "=")
		if k == "" {
			return nil, errs.New(errs.InvalidArgument, "--env %q: write NAME=VALUE, or NAME to pass on yours", s)
		}
		if !ok {
			if v, ok = os.LookupEnv(k); !ok {
				continue
			}
		}
		m[k] = v
	}
	return m, nil
}

func port(what, s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, errs.New(errs.InvalidArgument, "%s: %q is no port: write a number from 1 to 65535", what, s)
	}
	return uint32(n), nil
}
