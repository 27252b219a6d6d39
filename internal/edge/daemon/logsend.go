package daemon

import (
	"bytes"
	"fmt"
	"time"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/guest/logs"
)

// logSender picks and cuts what was asked for, and tells with each piece where
// it goes on.
type logSender struct {
	req     *broodv1.GetLogsRequest
	sandbox id.Sandbox
	send    func(*broodv1.GetLogsResponse) error
	streams [2]sending // stdout, stderr
}

// sending is one stream as far as it was sent.
type sending struct {
	from logs.Mark // the next byte to send
	end  logs.Mark // the next byte to read
	data []byte    // what is between them: the beginning of a line, with timestamps
	at   time.Time // of data
}

// nextForm is a sender's place in words: the sandbox, and where each stream
// goes on.
const nextForm = "%d.%d.%d/%d.%d.%d/%s"

func (o *logSender) next() string {
	out, err := o.streams[0].from, o.streams[1].from
	return fmt.Sprintf(nextForm, out.Generation, out.Offset, out.Skip, err.Generation, err.Offset, err.Skip, o.sandbox)
}

// begin takes a reader to where the caller's part of the output begins.
func (o *logSender) begin(r *logs.Reader) error {
	switch {
	case o.req.GetAfter() != "":
		if err := o.resume(o.req.GetAfter()); err != nil {
			return err
		}
		return r.Seek(o.earliest())
	case o.req.Tail != nil:
		return r.Tail(int(o.req.GetTail()))
	}
	return nil
}

// resume goes on where next was told.
func (o *logSender) resume(after string) error {
	var of id.Sandbox
	out, err := &o.streams[0].from, &o.streams[1].from
	if _, bad := fmt.Sscanf(after, nextForm, &out.Generation, &out.Offset, &out.Skip, &err.Generation, &err.Offset, &err.Skip, &of); bad != nil ||
		out.Offset < 0 || out.Skip < 0 || err.Offset < 0 || err.Skip < 0 {
		return errs.New(errs.InvalidArgument, "after: %.80q is no next of a piece of output", after)
	}
	if of != o.sandbox {
		return errs.New(errs.FailedPrecondition, "sandbox %s is another one than it was: read its output from the beginning", o.req.GetSandbox())
	}
	return nil
}

// earliest is the record to read first.
func (o *logSender) earliest() logs.Place {
	out, err := o.streams[0].from.Place, o.streams[1].from.Place
	if err.Before(out) {
		return err
	}
	return out
}

func (o *logSender) entry(e logs.Entry, at logs.Mark) error {
	stream := broodv1.LogStream_LOG_STREAM_STDOUT
	if e.Stream == logs.Stderr {
		stream = broodv1.LogStream_LOG_STREAM_STDERR
	}
	s := o.of(stream)
	switch {
	case at.Before(s.from.Place):
		return nil // it was sent
	case at.Place == s.from.Place && at.Skip < s.from.Skip:
		e.Data = e.Data[min(len(e.Data), s.from.Skip-at.Skip):]
		at = s.from
	}
	if len(s.data) == 0 {
		s.from = at
	}
	s.end = logs.Mark{Place: at.Place, Skip: at.Skip + len(e.Data)}
	if other := &o.streams[1-(stream-broodv1.LogStream_LOG_STREAM_STDOUT)]; len(other.data) == 0 && other.from.Before(at.Place) {
		other.from = logs.Mark{Place: at.Place}
	}
	if want := o.req.GetStream(); len(e.Data) == 0 || want != broodv1.LogStream_LOG_STREAM_UNSPECIFIED && want != stream {
		return nil
	}
	if !o.req.GetTimestamps() {
		s.from = s.end
		return o.send(&broodv1.GetLogsResponse{Stream: stream, Data: e.Data, Next: o.next()})
	}
	return o.lines(stream, e, at)
}

func (o *logSender) of(stream broodv1.LogStream) *sending {
	return &o.streams[stream-broodv1.LogStream_LOG_STREAM_STDOUT]
}

// maxLine bounds what is held of a line that does not end.
const maxLine = 64 << 10

// lines sends whole lines, each with the time of its beginning.
func (o *logSender) lines(stream broodv1.LogStream, e logs.Entry, at logs.Mark) error {
	s := o.of(stream)
	for line := range bytes.Lines(e.Data) {
		if len(s.data) == 0 {
			s.at = e.Time
		}
		s.data = append(s.data, line...)
		at.Skip += len(line)
		if line[len(line)-1] != '\n' && len(s.data) < maxLine {
			return nil
		}
		if err := o.line(stream, at); err != nil {
			return err
		}
	}
	return nil
}

// line sends what is held of a stream; it goes on at the mark.
func (o *logSender) line(stream broodv1.LogStream, goesOn logs.Mark) error {
	s := o.of(stream)
	data := s.data
	s.data, s.from = nil, goesOn
	return o.send(&broodv1.GetLogsResponse{Stream: stream, Data: data, Time: stamp(s.at), Next: o.next()})
}

// flush sends the last lines, which have no end. Nothing comes behind them.
func (o *logSender) flush() error {
	for i := range o.streams {
		s := &o.streams[i]
		if len(s.data) == 0 {
			continue
		}
		if err := o.line(broodv1.LogStream_LOG_STREAM_STDOUT+broodv1.LogStream(i), s.end); err != nil {
			return err
		}
	}
	return nil
}
