package forks

import (
	"fmt"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/edge/cli"
)

// plainDisplay writes a line for each thing that happened: for files, pipes
// and people who want to scroll.
type plainDisplay struct {
	app  *app
	book *book
}

func (d *plainDisplay) event(e *client.Event) error {
	d.book.note(e)
	switch {
	case e.Placement != nil:
		return d.app.Text("%s\n", placementText(e.Placement))
	case e.Sync != nil:
		if !d.book.worthALine(e.Sync) {
			return nil
		}
		return d.app.Text("%s\n", syncText(e.Sync))
	case e.Item != nil:
		return d.app.Text("%s\n", itemText(cli.Palette{}, e.Item))
	}
	return nil
}

func (d *plainDisplay) ran(o *outcome) error {
	d.book.ran(o)
	return d.app.showOutcome(o)
}

func (d *plainDisplay) tick() error { return nil }

func (d *plainDisplay) end() error {
	for _, line := range d.book.closing(cli.Palette{}) {
		if err := d.app.Text("%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

func placementText(p *daemonv1.ForkBatchPlacement) string {
	s := fmt.Sprintf("placed  %s of %s on %s", cli.Plural(p.GetCount(), "fork"), p.GetSource(), p.GetHost())
	if p.GetAttempt() > 1 {
		s += fmt.Sprintf(", attempt %d", p.GetAttempt())
	}
	if p.GetNeedsSync() {
		s += ", copied first"
	}
	if p.GetReason() != "" {
		s += ": " + p.GetReason()
	}
	return s
}

func syncText(p *daemonv1.SnapshotSyncProgress) string {
	return "copy    " + copyText(p)
}

func itemText(p cli.Palette, i *client.ForkBatchItem) string {
	if failedItem(i) {
		return p.Bad("failed") + fmt.Sprintf("  %s on %s: %s: %s", i.GetName(), cli.OrDash(i.GetHost()), i.GetErrorCode(), cli.OneLine(i.GetError()))
	}
	return fmt.Sprintf("ready   %s on %s in %s", i.GetName(), i.GetHost(), cli.Took(i.GetForkMs()))
}

func failedItem(i *client.ForkBatchItem) bool { return i.GetErrorCode() != "" || i.GetError() != "" }

// showOutcome writes what a command wrote, each line with its fork's name, and
// how it ended when that is worth a line.
func (a *app) showOutcome(o *outcome) error {
	prefix := o.item.GetName() + " | "
	if _, err := a.Out.Write(prefixed(prefix, o.stdout.Bytes())); err != nil {
		return err
	}
	if _, err := a.Err.Write(prefixed(prefix, o.stderr.Bytes())); err != nil {
		return err
	}
	if o.stdout.cut || o.stderr.cut {
		a.Say("%s: only the first MiB of its output is shown", o.item.GetName())
	}
	if o.failed() {
		a.Say("%s: %s", o.item.GetName(), o.reason())
	}
	return nil
}
