package daemon_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/wire"
)

// spoiled writes the same bytes for every message; it reads the details of
// errors.
type spoiled struct {
	name  string
	bytes []byte
}

func (s spoiled) Name() string                    { return s.name }
func (s spoiled) Marshal(any) ([]byte, error)     { return s.bytes, nil }
func (s spoiled) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

// marked sends requests with one more header.
type marked struct {
	to   http.RoundTripper
	keys []string
}

func (m marked) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, k := range m.keys {
		r.Header.Set(k, "nonsense")
	}
	return m.to.RoundTrip(r)
}

// overSocket sends requests to a daemon's socket.
func overSocket(t *testing.T, dir string, http2 bool) *http.Transport {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return home.DialSocket(ctx, home.At(dir).Socket())
		},
		Protocols: &http.Protocols{},
	}
	transport.Protocols.SetUnencryptedHTTP2(http2)
	transport.Protocols.SetHTTP1(!http2)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// Requests that never come to a handler are answered with the details that
// every error has, in every protocol, whether their call is a stream or not.
func TestMalformedRequestsAreToldInDetail(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, newWorld(t))
	garbage := []byte("{\xff\xff")
	huge := bytes.Repeat([]byte{'{'}, wire.MaxMessageBytes+1)
	gzipped := func() []connect.ClientOption {
		return []connect.ClientOption{
			connect.WithAcceptCompression("br", func() connect.Decompressor { return new(gzip.Reader) }, func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
			connect.WithSendCompression("br"),
		}
	}
	cases := map[string]struct {
		procedure string // empty: the ones there are
		opts      []connect.ClientOption
		headers   []string
		content   *spoiled
		want      errs.Code
	}{
		"garbage":             {content: &spoiled{bytes: garbage}, want: errs.InvalidArgument},
		"too large":           {content: &spoiled{bytes: huge}, want: errs.ResourceExhausted},
		"unknown content":     {content: &spoiled{name: "yaml"}, want: errs.Unsupported},
		"unknown compression": {opts: gzipped(), want: errs.Unsupported},
		"a time limit":        {headers: []string{"Connect-Timeout-Ms", "Grpc-Timeout"}, want: errs.InvalidArgument},
		"unknown method":      {procedure: "/cua.daemon.v1.DaemonService/Nope", want: errs.Unsupported},
		"unknown service":     {procedure: "/cua.daemon.v1.NopeService/Nope", want: errs.Unsupported},
		"health of nobody":    {procedure: "/grpc.health.v1.Health/Check", content: &spoiled{bytes: []byte("\x0a\x04nope")}, want: errs.NotFound},
	}
	protocols := map[string][]connect.ClientOption{
		"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()}, "grpc": {connect.WithGRPC()},
	}
	for name, c := range cases {
		for speaks, opts := range protocols {
			opts = append(append([]connect.ClientOption(nil), opts...), c.opts...)
			if c.content != nil {
				content := *c.content
				switch {
				case content.name != "":
				case speaks == "connect json":
					content.name = "json"
				default:
					content.name = "proto"
				}
				if name == "health of nobody" && speaks == "connect json" {
					content.bytes = []byte(`{"service": "nope"}`)
				}
				opts = append(opts, connect.WithCodec(content))
			}
			client := &http.Client{Transport: marked{overSocket(t, dir, speaks == "grpc"), c.headers}}
			one, many := c.procedure, c.procedure
			if one == "" {
				one, many = daemonv1connect.DaemonServiceGetInfoProcedure, daemonv1connect.ForkBatchServiceForkSandboxBatchProcedure
			}
			told(t, name+", "+speaks, call(t, client, one, opts), c.want)
			if name != "health of nobody" && name != "too large" { // a check is no stream, and 64 MiB take their time
				told(t, name+", stream, "+speaks, stream(t, client, many, opts), c.want)
			}
		}
	}
}

func call(t *testing.T, c *http.Client, procedure string, opts []connect.ClientOption) error {
	t.Helper()
	_, err := connect.NewClient[emptypb.Empty, emptypb.Empty](c, "http://localhost"+procedure, opts...).
		CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
	return err
}

func stream(t *testing.T, c *http.Client, procedure string, opts []connect.ClientOption) error {
	t.Helper()
	s, err := connect.NewClient[emptypb.Empty, emptypb.Empty](c, "http://localhost"+procedure, opts...).
		CallServerStream(t.Context(), connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		return err
	}
	for s.Receive() {
	}
	return errors.Join(s.Err(), s.Close())
}

// told checks an error of the daemon's and its details.
func told(t *testing.T, name string, err error, want errs.Code) {
	t.Helper()
	var call *connect.Error
	if !errors.As(err, &call) || len(call.Details()) != 1 {
		t.Errorf("%s: %v comes without its details", name, err)
		return
	}
	v, _ := call.Details()[0].Value()
	info, ok := v.(*daemonv1.DaemonErrorInfo)
	if !ok || info.GetMetadata()[wire.MetaCode] != want.Word() || info.GetMessage() != call.Message() || info.GetMessage() == "" {
		t.Errorf("%s: %v, %v", name, v, err)
	}
	if got := wire.Error(errs.New(want, "x")); connect.CodeOf(got) != call.Code() {
		t.Errorf("%s: status %s, want %s", name, call.Code(), connect.CodeOf(got))
	}
}

// Frames that are none, and too few or too many messages, are the caller's
// fault and not the daemon's.
func TestWrongFramesAreTheCallersFault(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, newWorld(t))
	client := &http.Client{Transport: overSocket(t, dir, false)}
	for _, content := range []string{"application/connect+json", "application/grpc-web+json"} {
		for name, body := range map[string]string{
			"no frame": "xxxx", "cut short": "\x00\x00\x00\x00\xff{}", "no message": "", "two messages": "\x00\x00\x00\x00\x02{}\x00\x00\x00\x00\x02{}",
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+daemonv1connect.ForkBatchServiceForkSandboxBatchProcedure, strings.NewReader(body))
			check(t, err)
			req.Header.Set("Content-Type", content)
			resp, err := client.Do(req)
			check(t, err)
			text, err := io.ReadAll(resp.Body)
			check(t, errors.Join(err, resp.Body.Close()))
			if status := resp.Header.Get("Grpc-Status"); !strings.Contains(string(text), `"code":"invalid_argument"`) && status != "3" {
				t.Errorf("%s, %s: %q, status %q", content, name, text, status)
			}
		}
	}
}

// What HTTP has a status for keeps it, and what is no call its plain answer.
func TestWhatIsNoCallIsAnsweredAsHTTP(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, newWorld(t))
	client := &http.Client{Transport: overSocket(t, dir, false)}
	for _, c := range []struct {
		method, path, content string
		status                int
		body                  string // how it begins
	}{
		{http.MethodPost, "/nope", "application/json", http.StatusNotFound, `{"code":"unimplemented"`},
		{http.MethodPost, daemonv1connect.DaemonServiceGetInfoProcedure, "application/xml", http.StatusUnsupportedMediaType, `{"code":"unimplemented"`},
		{http.MethodPost, daemonv1connect.DaemonServiceGetInfoProcedure, "text/plain", http.StatusUnsupportedMediaType, ""},
		{http.MethodPost, daemonv1connect.DaemonServiceGetInfoProcedure, "application/json", http.StatusBadRequest, `{"code":"invalid_argument"`},
		{http.MethodGet, "/", "", http.StatusNotFound, "404 page not found"},
		{http.MethodGet, daemonv1connect.DaemonServiceGetInfoProcedure, "", http.StatusMethodNotAllowed, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, strings.NewReader("x"))
		check(t, err)
		req.Header.Set("Content-Type", c.content)
		resp, err := client.Do(req)
		check(t, err)
		body, err := io.ReadAll(resp.Body)
		check(t, errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != c.status || !strings.HasPrefix(string(body), c.body) || c.body == "" && len(body) > 0 {
			t.Errorf("%s %s as %s: %s %q", c.method, c.path, c.content, resp.Status, body)
		}
	}
}
