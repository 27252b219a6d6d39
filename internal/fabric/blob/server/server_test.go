package server_test

import (
	"cmp"
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/blobtest"
	"brood/internal/fabric/blob/server"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killVar); dir != "" {
		serveForKill(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// start serves until the test is over and returns the address.
func start(t *testing.T, c server.Config) string {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	ready := make(chan net.Addr, 1)
	c.Ready = func(a net.Addr) { ready <- a }
	ctx, cancel := context.WithCancel(context.Background())
	g := life.NewGroup(ctx)
	g.Go("server", func(ctx context.Context) error { return server.Serve(ctx, c) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	select {
	case a := <-ready:
		return a.String()
	case <-g.Context().Done():
		t.Fatalf("server: %v", g.Wait())
		return ""
	}
}

func TestConformance(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///"+start(t, server.Config{}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	blobtest.Run(t, conn, "")
	t.Run("instance", func(t *testing.T) { blobtest.Run(t, conn, "team/main") })
}

func TestTokenIsWanted(t *testing.T) {
	address := "grpc://" + start(t, server.Config{Token: "let me in"})
	for header, code := range map[string]errs.Code{
		"": errs.Unauthenticated, "Bearer": errs.Unauthenticated, "Bearer wrong": errs.Unauthenticated,
		"Basic let me in": errs.Unauthenticated, "Bearer let me in": errs.OK,
	} {
		c, err := blob.Dial(blob.ClientConfig{Address: address, Headers: map[string]string{"authorization": header}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Limits(t.Context()); errs.CodeOf(err) != code {
			t.Errorf("%q: %v", header, err)
		}
		// Streams are guarded too.
		_, err = c.Fetch(t.Context(), blob.Of(make([]byte, 2<<20)))
		if want := cmp.Or(code, errs.NotFound); errs.CodeOf(err) != want {
			t.Errorf("%q: reading a blob: %v", header, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStrangersAreNotServedWithoutToken(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80"} {
		err := server.Serve(t.Context(), server.Config{Dir: t.TempDir(), Listen: listen})
		if errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestAPortThatThereCannotBeIsRefused(t *testing.T) {
	err := server.Serve(t.Context(), server.Config{Dir: t.TempDir(), Listen: "127.0.0.1:99999"})
	if errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), "port") {
		t.Errorf("%v", err)
	}
}

func TestOneServerPerFolder(t *testing.T) {
	dir := t.TempDir()
	start(t, server.Config{Dir: dir})
	if err := server.Serve(t.Context(), server.Config{Dir: dir, Listen: "127.0.0.1:0"}); errs.CodeOf(err) != errs.AlreadyExists {
		t.Errorf("%v", err)
	}
}
