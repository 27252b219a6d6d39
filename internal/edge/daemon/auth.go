package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
	"brood/internal/wire"
)

// guard lets a call over TCP pass when it names a loopback host and carries
// the token; the rest of a page's rules is the browser's, told by CORS for
// the origins that the user has named.
func (d *Daemon) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(d.info.Token))
	refuse := refuser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackHost(r.Host) {
			refuse(w, r, errs.New(errs.PermissionDenied, "the host %.80q is no loopback name: this address is for callers on this machine, use %s", r.Host, d.info.LoopbackURL))
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && slices.Contains(d.p.Settings.CORS, origin) {
			allow(w.Header(), origin)
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		got := sha256.Sum256([]byte(bearer(r.Header.Get("Authorization"))))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, r, errs.New(errs.Unauthenticated, "the token is missing or wrong: send the one of daemon.json as Authorization: Bearer"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer takes the token from an Authorization header, whose scheme may have
// any case (RFC 9110, 11.1). No token is empty, so that nothing else is one.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// refuser answers a call that does not get through in the protocol it came in,
// and what is no call in plain text.
func refuser() func(http.ResponseWriter, *http.Request, error) {
	ew := connect.NewErrorWriter()
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if ew.IsSupported(r) {
			_ = ew.Write(w, r, wire.Error(err)) // when that fails the caller is gone
			return
		}
		status := http.StatusUnauthorized
		if errs.Is(err, errs.PermissionDenied) {
			status = http.StatusForbidden
		}
		http.Error(w, err.Error(), status)
	}
}

// loopbackHost reports whether a Host header names this machine's loopback: a
// page that had a public name resolve to 127.0.0.1 is found out here.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Connect-Protocol-Version, Connect-Timeout-Ms, Grpc-Timeout, X-Grpc-Web, X-User-Agent, "+wire.HeaderBatchKey)
	h.Set("Access-Control-Expose-Headers", "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, "+wire.HeaderBatchID)
	h.Set("Access-Control-Max-Age", "7200")
}
