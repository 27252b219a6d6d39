package fork_test

import (
	"strings"
	"testing"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/test/live"
)

// Whatever is wrong with a request is said with its code before anything is
// done.
func TestRefusedBeforeAnythingIsDone(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client.CreateSandbox(within(t), &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{
		Name: "fixed", Image: "host", Forkable: new(bool),
	}}, nil); err != nil {
		t.Fatal(err)
	}
	many := func(source string, count uint32, o client.ForkManyOptions) func() error {
		return func() error {
			b, err := d.Client.ForkMany(within(t), source, count, &o)
			if err == nil {
				_, err = b.Collect(within(t))
			}
			return err
		}
	}
	groups := func(o client.ForkManyOptions, g ...client.ForkGroup) func() error {
		return func() error {
			_, err := d.Client.ForkGroups(within(t), g, &o)
			return err
		}
	}
	for name, c := range map[string]struct {
		want errs.Code
		says string
		do   func() error
	}{
		"count 0":          {errs.InvalidArgument, "count", many("base", 0, client.ForkManyOptions{})},
		"too many":         {errs.InvalidArgument, "10000", many("base", 10_001, client.ForkManyOptions{})},
		"no source":        {errs.InvalidArgument, "source", many("", 3, client.ForkManyOptions{})},
		"unknown source":   {errs.NotFound, "nobody", many("nobody", 3, client.ForkManyOptions{})},
		"not a checkpoint": {errs.NotFound, "src", many("checkpoint:src", 3, client.ForkManyOptions{})},
		"not a sandbox":    {errs.NotFound, "base", many("sandbox:base", 3, client.ForkManyOptions{})},
		"bad source":       {errs.InvalidArgument, "../x", many("../x", 3, client.ForkManyOptions{})},
		"bad prefix":       {errs.InvalidArgument, "A b", many("base", 3, client.ForkManyOptions{NamePrefix: "A b"})},
		"long prefix":      {errs.InvalidArgument, "prefix", many("base", 3, client.ForkManyOptions{NamePrefix: strings.Repeat("x", 63)})},
		"bad place":        {errs.InvalidArgument, "on", many("base", 3, client.ForkManyOptions{On: "moon"})},
		"unknown machine":  {errs.NotFound, "far", many("base", 3, client.ForkManyOptions{On: "host:far"})},
		"not forkable":     {errs.FailedPrecondition, "forkable", many("fixed", 3, client.ForkManyOptions{})},
		"group of 0":       {errs.InvalidArgument, "count", groups(client.ForkManyOptions{}, client.ForkGroup{Source: "base"})},
		"second unknown":   {errs.NotFound, "nobody", groups(client.ForkManyOptions{}, client.ForkGroup{Source: "src", Count: 1}, client.ForkGroup{Source: "nobody", Count: 1})},
		"size with groups": {errs.InvalidArgument, "group_size", groups(client.ForkManyOptions{GroupSize: 2}, client.ForkGroup{Source: "base", Count: 1})},
		"name taken": {errs.AlreadyExists, "src", func() error {
			_, err := d.Client.CreateSandbox(within(t), &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: "src", Image: "host"}}, nil)
			return err
		}},
		"unknown image": {errs.NotFound, "/no/such", func() error {
			_, err := d.Client.CreateSandbox(within(t), &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: "x", Image: "/no/such/folder"}}, nil)
			return err
		}},
		"gpu": {errs.Unsupported, "gpu", func() error {
			_, err := d.Client.CreateSandbox(within(t), &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: "x", Image: "host", Gpu: "nvidia"}}, nil)
			return err
		}},
		"checkpoint taken": {errs.AlreadyExists, "base", func() error {
			_, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{})
			return err
		}},
	} {
		err := c.do()
		if !errs.Is(err, c.want) || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (code %s), want %s and %q", name, err, errs.CodeOf(err), c.want, c.says)
		}
	}
	sandboxes, err := d.Client.ListSandboxes(within(t))
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, err := d.Client.ListCheckpoints(within(t), true)
	if err != nil {
		t.Fatal(err)
	}
	batches, err := d.Client.ListBatches(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(sandboxes.GetSandboxes()) != 2 || len(checkpoints) != 1 || len(batches) != 0 {
		t.Errorf("something was done: %d sandboxes, %d checkpoints, %d batches", len(sandboxes.GetSandboxes()), len(checkpoints), len(batches))
	}
}

func TestNamesThatClashAreAllNamed(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "f-1")
	create(t, d, "f-3")
	_, err := d.Client.ForkMany(within(t), "f-1", 5, &client.ForkManyOptions{NamePrefix: "f"})
	if !errs.Is(err, errs.AlreadyExists) || !strings.Contains(err.Error(), "f-1") || !strings.Contains(err.Error(), "f-3") {
		t.Errorf("err = %v", err)
	}
	if all, _ := d.Client.ListCheckpoints(within(t), true); len(all) != 0 {
		t.Errorf("a refused batch left checkpoints: %v", all)
	}
}
