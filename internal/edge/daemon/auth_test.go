package daemon_test

import (
	"net/http"
	"os"
	"testing"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/wire"
)

// changed sends requests with a header and a host of its own.
type changed struct {
	to            *http.Transport
	authorization string
	host          string
}

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", c.authorization)
	if c.host != "" {
		r.Host = c.host
	}
	return c.to.RoundTrip(r)
}

// Who does not get through is told so in the protocol that was spoken, with
// the details that every error has.
func TestRefusalsSpeakTheCallersProtocol(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, newWorld(t))
	b, err := os.ReadFile(home.At(dir).Discovery())
	check(t, err)
	found, err := wire.ParseDiscovery(b)
	check(t, err)
	protocols := map[string][]connect.ClientOption{
		"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()}, "grpc": {connect.WithGRPC()},
	}
	for name, opts := range protocols {
		transport := &http.Transport{Protocols: &http.Protocols{}}
		transport.Protocols.SetUnencryptedHTTP2(name == "grpc")
		transport.Protocols.SetHTTP1(name != "grpc")
		defer transport.CloseIdleConnections()
		ask := func(authorization, host string) error {
			c := daemonv1connect.NewDaemonServiceClient(&http.Client{Transport: changed{transport, authorization, host}}, found.LoopbackURL, opts...)
			_, err := c.GetInfo(t.Context(), connect.NewRequest(&daemonv1.GetInfoRequest{}))
			return err
		}
		for _, authorization := range []string{"Bearer " + found.Token, "bearer " + found.Token} {
			if err := ask(authorization, ""); err != nil {
				t.Errorf("%s with %.6s: %v", name, authorization, err)
			}
		}
		refused(t, name, ask("Bearer wrong", ""), errs.Unauthenticated, connect.CodeUnauthenticated)
		refused(t, name, ask("", ""), errs.Unauthenticated, connect.CodeUnauthenticated)
		refused(t, name, ask("Basic "+found.Token, ""), errs.Unauthenticated, connect.CodeUnauthenticated)
		refused(t, name, ask("Bearer "+found.Token, "example.test"), errs.PermissionDenied, connect.CodePermissionDenied)
	}
}

func refused(t *testing.T, name string, err error, code errs.Code, status connect.Code) {
	t.Helper()
	if !errs.Is(wire.FromError(err), code) || connect.CodeOf(err) != status {
		t.Errorf("%s: %v (status %s)", name, err, connect.CodeOf(err))
		return
	}
	call, ok := err.(*connect.Error) //nolint:errorlint // the client returns no other
	if !ok || len(call.Details()) != 1 {
		t.Errorf("%s: %v comes without its details", name, err)
		return
	}
	v, err := call.Details()[0].Value()
	info, ok := v.(*daemonv1.DaemonErrorInfo)
	if err != nil || !ok || info.GetReason() != daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNAUTHENTICATED || info.GetMetadata()[wire.MetaCode] == "" {
		t.Errorf("%s: %v, %v", name, v, err)
	}
}
