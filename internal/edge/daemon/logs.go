package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/logs"
)

type logService struct{ d *Daemon }

// logPeriod is how often a followed log is looked at: output is there within
// what a person notices.
const logPeriod = 100 * time.Millisecond

// GetLogs streams what a sandbox's command wrote.
func (s *logService) GetLogs(ctx context.Context, req *connect.Request[broodv1.GetLogsRequest], stream *connect.ServerStream[broodv1.GetLogsResponse]) error {
	name, err := nameOf("sandbox", req.Msg.GetSandbox())
	if err != nil {
		return err
	}
	paths, _, err := s.d.host.Logs(name)
	if err != nil {
		return err
	}
	r, err := logs.Open(paths)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "sandbox %s has no output yet: %w", name, err)
	}
	defer r.Close()
	if req.Msg.Tail != nil {
		if err := r.Tail(int(req.Msg.GetTail())); err != nil {
			return err
		}
	}
	out := &logSender{req: req.Msg, send: stream.Send}
	ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
	defer cancel()
	for {
		over := !req.Msg.GetFollow() || s.ended(name)
		if err := drain(r, out); err != nil {
			return err
		}
		if over {
			return out.flush()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPeriod):
		}
	}
}

// drain sends what there is now.
func drain(r *logs.Reader, out *logSender) error {
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.entry(e); err != nil {
			return err
		}
	}
}

// ended reports whether nothing more will be written.
func (s *logService) ended(name id.Name) bool {
	sb, err := s.d.host.Get(name)
	return err != nil || sb.State != sandbox.Running && sb.State != sandbox.Provisioning
}

// logSender picks and cuts what was asked for.
type logSender struct {
	req  *broodv1.GetLogsRequest
	send func(*broodv1.GetLogsResponse) error
	held [2]struct { // the beginning of a line, with timestamps
		data []byte
		at   time.Time
	}
}

func (o *logSender) entry(e logs.Entry) error {
	stream := broodv1.LogStream_LOG_STREAM_STDOUT
	if e.Stream == logs.Stderr {
		stream = broodv1.LogStream_LOG_STREAM_STDERR
	}
	if want := o.req.GetStream(); want != broodv1.LogStream_LOG_STREAM_UNSPECIFIED && want != stream {
		return nil
	}
	if !o.req.GetTimestamps() {
		return o.send(&broodv1.GetLogsResponse{Stream: stream, Data: e.Data})
	}
	return o.lines(stream, e)
}

// maxLine bounds what is held of a line that does not end.
const maxLine = 64 << 10

// lines sends whole lines, each with the time of its beginning.
func (o *logSender) lines(stream broodv1.LogStream, e logs.Entry) error {
	held := &o.held[stream-broodv1.LogStream_LOG_STREAM_STDOUT]
	for line := range bytes.Lines(e.Data) {
		if len(held.data) == 0 {
			held.at = e.Time
		}
		held.data = append(held.data, line...)
		if line[len(line)-1] != '\n' && len(held.data) < maxLine {
			return nil
		}
		if err := o.send(&broodv1.GetLogsResponse{Stream: stream, Data: held.data, Time: stamp(held.at)}); err != nil {
			return err
		}
		held.data = nil
	}
	return nil
}

// flush sends the last line, which has no end.
func (o *logSender) flush() error {
	for i := range o.held {
		if h := &o.held[i]; len(h.data) > 0 {
			m := &broodv1.GetLogsResponse{Stream: broodv1.LogStream_LOG_STREAM_STDOUT + broodv1.LogStream(i), Data: h.data, Time: stamp(h.at)}
			if err := o.send(m); err != nil {
				return err
			}
		}
	}
	return nil
}
