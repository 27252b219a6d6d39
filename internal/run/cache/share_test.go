package cache_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"brood/internal/base/life"
	"brood/internal/fabric/blob"
	"brood/internal/run/cache"
	"brood/internal/run/cache/artifact"
	"brood/internal/run/cache/reapi"
)

// saves runs three tasks whose results go to the shared cache.
func saves(w *world) {
	build := task("a#build", "dist/**")
	for _, key := range []string{"1", "2", "3"} {
		w.mustRun(build, key, "", func() { w.put("a/dist/x", key) })
	}
}

func TestUploadsThatFailAreSaidOnceTheyWereWaitedFor(t *testing.T) {
	s := &turboServer{fault: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			http.Error(w, "read only", http.StatusForbidden)
		}
		return r.Method == http.MethodPut
	}}
	w := newWorld(t)
	w.cfg.Remote = turbo(t, s)
	saves(w)
	w.open().Share(t.Context(), nil)
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0].Error(), "did not take 3 results") || !strings.Contains(w.warnings[0].Error(), "read only") {
		t.Errorf("warnings %v", w.warnings)
	}
	w.close()
	if len(w.warnings) != 1 {
		t.Errorf("said again: %v", w.warnings)
	}
}

func TestTheWaitForUploadsCanBeEnded(t *testing.T) {
	s := &turboServer{fault: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
			<-r.Context().Done()
		}
		return r.Method == http.MethodPut
	}}
	w := newWorld(t)
	w.cfg.Remote = turbo(t, s)
	saves(w)
	ctx, cancel := context.WithCancel(t.Context())
	left := 0
	w.open().Share(ctx, func(n int) {
		left = n
		cancel()
	})
	if left != 3 {
		t.Errorf("%d uploads are left while the server does not answer", left)
	}
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0].Error(), "did not take 3 results") || !strings.Contains(w.warnings[0].Error(), "interrupted") {
		t.Errorf("warnings %v", w.warnings)
	}
	w.close()
}

// silent accepts connections and never says a word.
func silent(t *testing.T) (address string, accepted *atomic.Int64) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int64)
	g := life.NewGroup(context.Background())
	var all []net.Conn
	g.Go("accept", func(context.Context) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil //nolint:nilerr // the listener is closed
			}
			accepted.Add(1)
			all = append(all, c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		_ = g.Wait()
		for _, c := range all {
			_ = c.Close()
		}
	})
	return l.Addr().String(), accepted
}

func TestASharedCacheThatNeverAnswersIsWaitedForOnce(t *testing.T) {
	for kind, dial := range map[string]func(*testing.T, string) cache.Remote{
		"turbo": func(t *testing.T, at string) cache.Remote {
			t.Helper()
			c, err := artifact.New(artifact.Config{API: "http://" + at, Token: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		},
		"reapi": func(t *testing.T, at string) cache.Remote {
			t.Helper()
			c, err := blob.Dial(blob.ClientConfig{Address: "grpc://" + at})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return reapi.New(c)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at, accepted := silent(t)
			w := newWorld(t)
			w.cfg.Remote = dial(t, at)
			build := task("a#build", "dist/**")
			w.want(build, "1", "miss")
			n := accepted.Load()
			w.want(build, "2", "miss")
			saves(w)
			w.open().Share(t.Context(), nil)
			w.close()
			if got := accepted.Load(); n != 1 || got != 1 {
				t.Errorf("%d connections for the first question, %d in all", n, got)
			}
			if len(w.warnings) != 1 || !strings.Contains(w.warnings[0].Error(), "does without it") {
				t.Errorf("warnings %v", w.warnings)
			}
		})
	}
}
