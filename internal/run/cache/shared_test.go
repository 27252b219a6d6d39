package cache_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"brood/internal/base/life"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/disk"
	"brood/internal/fabric/blob/server"
	"brood/internal/run/cache"
	"brood/internal/run/cache/artifact"
	"brood/internal/run/cache/reapi"
)

// turboServer answers as servers of Turborepo's API do.
type turboServer struct {
	mu    sync.Mutex
	m     map[string][]byte
	fault func(w http.ResponseWriter, r *http.Request) bool
	asked atomic.Int64
}

func (s *turboServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.fault != nil && s.fault(w, r) {
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/base/v8/artifacts/")
	if !ok || r.Header.Get("Authorization") != "Bearer secret" || r.URL.Query().Get("slug") != "team" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) || r.Header.Get("x-artifact-duration") != "3000" {
			http.Error(w, "bad upload", http.StatusBadRequest)
			return
		}
		s.m[key] = b
		w.WriteHeader(http.StatusAccepted)
	case http.MethodGet:
		b, ok := s.m[key]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	default:
		http.Error(w, "what", http.StatusMethodNotAllowed)
	}
}

func turbo(t *testing.T, s *turboServer) cache.Remote {
	t.Helper()
	s.m = map[string][]byte{}
	srv := httptest.NewServer(s)
	c, err := artifact.New(artifact.Config{API: srv.URL + "/base", Token: "secret", Team: "team", Agent: "brood"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

func bazel(t *testing.T) cache.Remote {
	t.Helper()
	store, err := disk.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	server.Register(srv, store, false)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := life.NewGroup(context.Background())
	g.Go("server", func(context.Context) error { return srv.Serve(l) })
	client, err := blob.Dial(blob.ClientConfig{Address: "grpc://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		if err := errors.Join(g.Wait(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return reapi.New(client)
}

// TestShared runs the same checks against both kinds of shared cache.
func TestShared(t *testing.T) {
	for kind, remote := range map[string]func(*testing.T) cache.Remote{
		"turbo": func(t *testing.T) cache.Remote { return turbo(t, &turboServer{}) },
		"reapi": bazel,
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Remote = remote(t)
			build, files := task("a#build", "dist/**"), task("b#files", "*.js", "link")
			files.Dir, files.Project = "b", "b"
			w.mustRun(build, "k", strings.Repeat("a long log\n", 1000), w.oddities)
			w.mustRun(files, "f", "", func() {
				w.put("b/x.js", "one file, no folder")
				w.put("b/\xfe.js", "odd")
				_ = os.Symlink("\xfe.js", filepath.Join(w.root, "b/link"))
			})
			want := tree(t, w.root)
			w.close()
			other := w.at(t.TempDir())
			other.dir = filepath.Join(t.TempDir(), "cache")
			other.put("a/src.ts", "source")
			h, ok := other.open().Lookup(t.Context(), build, keyOf("k"))
			if !ok || !h.Remote() || h.Took().Seconds() != 3 || h.Usage().PeakMemory != 77 || h.Usage().CPU.Seconds() != 2 {
				t.Fatalf("hit %v: %+v", ok, h)
			}
			log, err := h.Log(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(log); len(b) != 11_000 {
				t.Errorf("log has %d bytes", len(b))
			}
			other.want(build, "k", "restored")
			other.want(files, "f", "restored")
			other.want(build, "none", "miss")
			other.close()
			if got := tree(t, other.root); got != want {
				t.Errorf("restored:\n%s\nwant\n%s", got, want)
			}
			other.cfg.Remote = nil
			if h, ok := other.open().Lookup(t.Context(), build, keyOf("k")); !ok || h.Remote() {
				t.Error("what was fetched is not in the local store")
			}
			other.want(build, "k", "same")
			if len(w.warnings)+len(other.warnings) > 0 {
				t.Errorf("warnings %v %v", w.warnings, other.warnings)
			}
		})
	}
}

func TestReadsAndWritesAreSwitchedApart(t *testing.T) {
	s := &turboServer{}
	w := newWorld(t)
	w.cfg.Remote = turbo(t, s)
	build := task("a#build", "dist/**")
	make := func(key string) { w.mustRun(build, key, "", func() { w.put("a/dist/x", key) }) }
	w.cfg.Local, w.cfg.Shared = cache.Access{}, cache.Access{Read: true}
	make("1")
	w.close()
	if len(s.m) != 0 {
		t.Error("written though only reads are on")
	}
	w.cfg.Shared = cache.Access{Write: true}
	make("2")
	w.close()
	w.want(build, "2", "miss") // neither is read
	w.close()
	w.cfg.Shared = cache.Access{Read: true}
	w.remove("a/dist")
	w.want(build, "2", "restored")
	w.close()
	w.cfg.Shared = cache.Access{}
	w.want(build, "2", "miss") // nothing was written to the local store
}

func TestASharedCacheThatFailsIsAMissAndOneWarning(t *testing.T) {
	for name, fault := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"refuses": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "go away", http.StatusForbidden)
			return true
		},
		"rubbish": func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, "rubbish"); return true },
		"breaks": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000000")
			_, _ = io.WriteString(w, "begin")
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &turboServer{fault: fault}
			w := newWorld(t)
			w.cfg.Remote = turbo(t, s)
			build := task("a#build", "dist/**")
			for i := range 20 {
				key := string(rune('a' + i))
				w.want(build, key, "miss")
				w.mustRun(build, key, "", func() { w.put("a/dist/x", key) })
			}
			w.close()
			if len(w.warnings) != 1 {
				t.Errorf("%d warnings: %v", len(w.warnings), w.warnings)
			}
			if n := s.asked.Load(); n > 40 {
				t.Errorf("asked %d times: it is left alone when it goes on failing", n)
			}
		})
	}
}

func TestBusyServersAreAskedAgain(t *testing.T) {
	var n atomic.Int64
	s := &turboServer{fault: func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1)%2 == 1 {
			http.Error(w, "busy", http.StatusTooManyRequests)
			return true
		}
		return false
	}}
	w := newWorld(t)
	w.cfg.Remote = turbo(t, s)
	build := task("a#build", "dist/**")
	w.mustRun(build, "k", "", func() { w.put("a/dist/x", "x") })
	w.close()
	if len(s.m) != 1 || len(w.warnings) != 0 {
		t.Errorf("%d artifacts, warnings %v", len(s.m), w.warnings)
	}
}
