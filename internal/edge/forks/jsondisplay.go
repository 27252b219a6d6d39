package forks

import (
	"brood/client"
	"brood/internal/edge/cli"
)

// jsonDisplay writes every event as it comes, but the summary last.
type jsonDisplay struct {
	app  *app
	done *client.Event
}

func (d *jsonDisplay) event(e *client.Event) error {
	if e.Done != nil {
		d.done = e
		return nil
	}
	return d.write(e)
}

func (d *jsonDisplay) write(e *client.Event) error {
	b, err := e.JSON()
	if err != nil {
		return err
	}
	return d.app.Line(b)
}

// execLine is the end of a command in a fork, as a program reads it. Each
// output is text, or base64 when it is not UTF-8: JSON has no other bytes.
type execLine struct {
	Index        uint32  `json:"index"`
	Name         string  `json:"name"`
	Code         int32   `json:"code"`
	Signal       int32   `json:"signal"`
	Error        string  `json:"error"`
	Stdout       *string `json:"stdout,omitempty"`
	StdoutBase64 []byte  `json:"stdout_base64,omitempty"`
	Stderr       *string `json:"stderr,omitempty"`
	StderrBase64 []byte  `json:"stderr_base64,omitempty"`
	Truncated    bool    `json:"truncated"`
	ElapsedMs    int64   `json:"elapsed_ms"`
}

func (d *jsonDisplay) ran(o *outcome) error {
	l := execLine{
		Index: o.item.GetIndex(), Name: o.item.GetName(), Code: o.exit.GetCode(), Signal: o.exit.GetSignal(), Error: o.exit.GetError(),
		Truncated: o.stdout.cut || o.stderr.cut, ElapsedMs: o.elapsed.Milliseconds(),
	}
	l.Stdout, l.StdoutBase64 = o.stdout.text()
	l.Stderr, l.StderrBase64 = o.stderr.text()
	if o.err != nil {
		l.Code, l.Error = exitBrood, cli.OneLine(o.err.Error())
	}
	return d.app.Value(map[string]execLine{"exec": l})
}

func (d *jsonDisplay) tick() error { return nil }

func (d *jsonDisplay) end() error {
	if d.done == nil {
		return nil
	}
	return d.write(d.done)
}
