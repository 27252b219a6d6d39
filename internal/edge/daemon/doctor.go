package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/guest/proto"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/image"
)

type runtimeService struct{ d *Daemon }

// Doctor checks what brood needs by doing it.
func (s *runtimeService) Doctor(ctx context.Context, _ *connect.Request[daemonv1.DoctorRequest]) (*connect.Response[daemonv1.DoctorResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	checks := []check{s.d.checkNamespaces(), s.d.checkDisk()}
	checks = append(checks, s.d.checkForks(ctx)...)
	checks = append(checks, checkLimits(), s.d.checkRoot(ctx))
	report, err := json.Marshal(map[string]any{"checks": checks})
	if err != nil {
		return nil, err
	}
	resp := &daemonv1.DoctorResponse{ReportJson: string(report)}
	for _, c := range checks {
		resp.Checks = append(resp.Checks, c.message())
	}
	return connect.NewResponse(resp), nil
}

// doctorLimit bounds all checks together; on a healthy machine they take a
// second.
const doctorLimit = 90 * time.Second

// check is one thing that was tried. The protocol's own status knows no
// warning, so that the report has it.
type check struct {
	Name    string `json:"name"`
	Status  string `json:"status"` // ok, warning, error
	Version string `json:"version,omitempty"`
	Detail  string `json:"detail"`
	Fix     string `json:"fix,omitempty"`
}

func (c check) message() *daemonv1.RuntimeCheck {
	m := &daemonv1.RuntimeCheck{Name: c.Name, Status: daemonv1.CheckStatus_CHECK_STATUS_OK, Version: c.Version, Detail: c.Detail}
	switch c.Status {
	case "error":
		m.Status = daemonv1.CheckStatus_CHECK_STATUS_ERROR
	case "warning":
		// The nearest the protocol has: it works, and there is more to be had.
		m.Status = daemonv1.CheckStatus_CHECK_STATUS_INSTALLABLE
	}
	if c.Fix != "" {
		m.Detail += "\nfix: " + c.Fix
	}
	return m
}

// checkNamespaces looks at what keeps an ordinary user from making the
// namespaces that the runtime lives in. Whether they really work is shown by
// checkForks.
func (d *Daemon) checkNamespaces() check {
	c := check{Name: "namespaces", Status: "ok", Detail: "running as root: none of its own is needed"}
	if os.Geteuid() == 0 {
		return c
	}
	c.Detail = "an ordinary user may make user namespaces"
	for _, s := range []struct{ file, bad, what, fix string }{
		{"/proc/sys/user/max_user_namespaces", "0", "user namespaces are switched off", "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "user namespaces are for root only", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for " + d.runtimeHint()},
	} {
		if b, err := os.ReadFile(s.file); err == nil && string(bytes.TrimSpace(b)) == s.bad {
			c.Status, c.Detail, c.Fix = "warning", s.what+" ("+s.file+")", "as root: "+s.fix
		}
	}
	return c
}

func (d *Daemon) runtimeHint() string { return d.home.Runtimes() + "/*/brood-runtime" }

func (d *Daemon) checkDisk() check {
	if err := checkpoint.Room(d.home.Checkpoints(), 64<<20, 0); err != nil {
		return check{Name: "disk", Status: "error", Detail: err.Error(), Fix: "free space on the disk of " + d.home.Dir()}
	}
	return check{Name: "disk", Status: "ok", Detail: "there is room for checkpoints in " + d.home.Dir()}
}

// checkForks makes a sandbox, saves it, forks it, and asks the fork who it is.
func (d *Daemon) checkForks(ctx context.Context) []check {
	name := id.Name("doctor-" + id.Random(4))
	fork := name + "-fork"
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		for _, n := range []id.Name{name, fork} {
			if err := d.host.Delete(end, n); err != nil && !errs.Is(err, errs.NotFound) {
				d.log.Error("remove what doctor made", "sandbox", n, "error", err)
			}
		}
	}()
	fix := "see " + d.home.Logs() + "/runtime.log"
	began := time.Now()
	_, err := d.host.Create(ctx, host.CreateParams{Name: string(name), Image: "host", Ephemeral: true})
	if err != nil {
		return []check{{Name: "gvisor run", Status: "error", Version: string(d.driver.Runtime()), Detail: err.Error(), Fix: fix}}
	}
	checks := []check{{
		Name: "gvisor run", Status: "ok", Version: string(d.driver.Runtime()),
		Detail: fmt.Sprintf("a sandbox of this machine's root runs, started in %d ms", time.Since(began).Milliseconds()),
	}}
	f, err := d.batches.ForkOne(ctx, "sandbox:"+string(name), host.ForkParams{Name: fork})
	if err == nil {
		err = d.askName(ctx, fork)
	}
	if err != nil {
		return append(checks, check{Name: "gvisor fork", Status: "error", Detail: err.Error(), Fix: fix})
	}
	return append(checks,
		check{Name: "gvisor fork", Status: "ok", Detail: fmt.Sprintf("a checkpoint of it was forked in %d ms; the fork has a name of its own", f.Took.Milliseconds())},
		check{Name: "clock", Status: "ok", Detail: "the fork's clock is this machine's, within 100 ms"})
}

// askName runs a program in a fork that says the fork's own name.
func (d *Daemon) askName(ctx context.Context, name id.Name) error {
	g, _, err := d.host.Guest(name)
	if err != nil {
		return err
	}
	a, err := g.Exec(ctx, proto.ExecArgs{ID: string(id.NewExec()), Command: proto.Command{Argv: []string{"/bin/uname", "-n"}}})
	if err != nil {
		return err
	}
	defer a.Close()
	var out, complaint bytes.Buffer
	exit, err := a.CopyTo(&out, &complaint)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(out.String()); exit.Code != 0 || got != string(name) {
		return errs.New(errs.FailedPrecondition, "`uname -n` in fork %s ended with %d and said %q %s", name, exit.Code, got, complaint.String())
	}
	return nil
}

// checkLimits says what is not enforced.
func checkLimits() check {
	return check{
		Name: "limits", Status: "warning",
		Detail: "--cpus and --memory are counted when sandboxes are placed, and not enforced",
		Fix:    "none yet: leave memory free for what your sandboxes may use",
	}
}

// checkRoot looks whether the host image can be made of this machine.
func (d *Daemon) checkRoot(ctx context.Context) check {
	i, err := d.images.Resolve(ctx, "host", image.Options{})
	if err != nil {
		return check{Name: "host image", Status: "error", Detail: err.Error(), Fix: "use an image: `brood sb create /path/of/a/root`"}
	}
	c := check{Name: "host image", Status: "ok", Detail: fmt.Sprintf("this machine's root by allow-list, %d folders", len(i.Root.Host.Binds))}
	if len(i.Notes) > 0 {
		c.Status, c.Detail = "warning", c.Detail+": "+strings.Join(i.Notes, "; ")
	}
	return c
}
