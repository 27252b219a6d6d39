package daemon

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
	"brood/internal/wire"
)

// detailed gives those errors their details that the handlers' library answers
// itself, before a call comes to an interceptor: of requests that cannot be
// read, and of paths that are no procedure. What is no call keeps the plain
// answer of HTTP.
func detailed(next http.Handler) http.Handler {
	ew := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		speaks := protocolOf(r)
		if speaks == noProtocol {
			next.ServeHTTP(w, r)
			return
		}
		a := &answer{ResponseWriter: w, speaks: speaks}
		next.ServeHTTP(a, r)
		a.end(ew, r)
	})
}

// protocol is the one that a call came in.
type protocol int

const (
	noProtocol protocol = iota
	connectUnary
	connectStream
	grpcWeb
	grpcPlain
)

func protocolOf(r *http.Request) protocol {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		return noProtocol
	case strings.HasPrefix(kind, "application/grpc-web"):
		return grpcWeb
	case strings.HasPrefix(kind, "application/grpc"):
		return grpcPlain
	case strings.HasPrefix(kind, "application/connect+"):
		return connectStream
	case strings.HasPrefix(kind, "application/"):
		return connectUnary
	}
	return noProtocol
}

// lastMessage is the flag of a Connect stream's last message, which has its
// error; packedMessage that of one that gzip wrote.
const (
	packedMessage = 1
	lastMessage   = 2
)

// answer passes on what a handler answers. It holds back what may be an error
// without details, which is all that comes: a refusal has no messages.
type answer struct {
	http.ResponseWriter
	speaks  protocol
	began   bool // the status is known
	holding bool
	status  int
	held    bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.began {
		return
	}
	a.began, a.status = true, status
	switch {
	case status >= http.StatusBadRequest:
		a.holding = true
		return
	case a.speaks == grpcWeb: // without messages the trailers are headers
		complete(a.Header(), "")
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.began && a.speaks == connectStream && len(p) > 0 && p[0]&lastMessage != 0 {
		a.began, a.holding, a.status = true, true, http.StatusOK
	}
	a.WriteHeader(http.StatusOK)
	if a.holding {
		return a.held.Write(p)
	}
	return a.ResponseWriter.Write(p)
}

// Flush sends what there is on its way. The library asks for it by type.
func (a *answer) Flush() {
	a.WriteHeader(http.StatusOK)
	if f, ok := a.ResponseWriter.(http.Flusher); ok && !a.holding {
		f.Flush()
	}
}

// end answers what was held back, or completes what follows the messages.
func (a *answer) end(ew *connect.ErrorWriter, r *http.Request) {
	if !a.holding {
		a.WriteHeader(http.StatusOK)
		if a.speaks == grpcPlain {
			complete(a.Header(), http.TrailerPrefix)
		}
		return
	}
	err := a.refusal(r)
	if err == nil {
		a.ResponseWriter.WriteHeader(a.status)
		_, _ = a.ResponseWriter.Write(a.held.Bytes()) // when that fails the caller is gone
		return
	}
	r.Header.Del("Connect-Protocol-Version") // a wrong one would have it answered in another protocol
	_ = ew.Write(statusWriter{a}, r, wire.Error(err))
}

// statusWriter keeps the status that HTTP has for a refusal, where the protocol
// leaves it open.
type statusWriter struct{ a *answer }

func (s statusWriter) Header() http.Header         { return s.a.Header() }
func (s statusWriter) Write(p []byte) (int, error) { return s.a.ResponseWriter.Write(p) }
func (s statusWriter) WriteHeader(status int) {
	if s.a.speaks == connectUnary && s.a.status < http.StatusInternalServerError {
		status = s.a.status
	}
	s.a.ResponseWriter.WriteHeader(status)
}

// refusal is the error that was held back; nil when it is complete as it is.
func (a *answer) refusal(r *http.Request) error {
	plain := !strings.HasPrefix(a.Header().Get("Content-Type"), "application/")
	switch {
	case plain && a.status == http.StatusNotFound:
		return errs.New(errs.Unsupported, "%.200q is no procedure of this daemon: ask its reflection for those there are, or use a client of its version", r.URL.Path)
	case a.status == http.StatusUnsupportedMediaType:
		return errs.New(errs.Unsupported, "the content type %.80q is not spoken here: use one of %s", r.Header.Get("Content-Type"), a.Header().Get("Accept-Post"))
	case a.speaks == connectUnary:
		return undetailed(a.held.Bytes())
	case a.speaks == connectStream:
		var last struct {
			Error json.RawMessage `json:"error"`
		}
		if json.Unmarshal(unframed(a.held.Bytes()), &last) == nil {
			return undetailed(last.Error)
		}
	}
	return nil
}

// unframed is the text of the only message of a stream.
func unframed(b []byte) []byte {
	const prefix = 5
	if len(b) < prefix || b[0]&packedMessage == 0 {
		return b[min(prefix, len(b)):]
	}
	z := new(gzip.Reader)
	if z.Reset(bytes.NewReader(b[prefix:])) != nil {
		return nil
	}
	text, _ := io.ReadAll(z) // half a text is no error that can be read
	return text
}

// undetailed reads an error of Connect; nil when it is none, or has details.
func undetailed(b []byte) error {
	var said struct {
		Code    connect.Code      `json:"code"`
		Message string            `json:"message"`
		Details []json.RawMessage `json:"details"`
	}
	if json.Unmarshal(b, &said) == nil && said.Code != 0 && len(said.Details) == 0 {
		return connect.NewError(said.Code, errors.New(said.Message))
	}
	return nil
}

const (
	grpcStatus  = "Grpc-Status"
	grpcMessage = "Grpc-Message"
	grpcDetails = "Grpc-Status-Details-Bin"
)

// complete gives gRPC's status its details when it has none. The keys in h
// begin with prefix.
func complete(h http.Header, prefix string) {
	code, err := strconv.ParseUint(h.Get(prefix+grpcStatus), 10, 32)
	if err != nil || code == 0 || h.Get(prefix+grpcDetails) != "" {
		return
	}
	message, err := url.PathUnescape(h.Get(prefix + grpcMessage))
	if err != nil {
		message = h.Get(prefix + grpcMessage)
	}
	// The library writes a status into headers for gRPC-Web only.
	web := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/grpc-web"}}}
	whole := headers{}
	_ = connect.NewErrorWriter().Write(whole, web, wire.Error(connect.NewError(connect.Code(code), errors.New(message)))) // it has nowhere to fail
	for _, key := range []string{grpcStatus, grpcMessage, grpcDetails} {
		h.Set(prefix+key, http.Header(whole).Get(key))
	}
}

// headers takes an answer that has nothing else.
type headers http.Header

func (h headers) Header() http.Header         { return http.Header(h) }
func (h headers) Write(p []byte) (int, error) { return len(p), nil }
func (h headers) WriteHeader(int)             {}
