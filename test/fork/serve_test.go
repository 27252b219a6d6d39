package fork_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/wire"
	"brood/test/live"
)

func discovery(t testing.TB, d *live.Daemon) wire.Discovery {
	t.Helper()
	b, err := os.ReadFile(d.Home + "/daemon.json")
	if err != nil {
		t.Fatal(err)
	}
	found, err := wire.ParseDiscovery(b)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// call makes a Connect call with JSON and returns the status and the answer.
func call(t testing.TB, url, method, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, url+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	change(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestLoopbackWantsTokenAndLoopbackName(t *testing.T) {
	d := live.Start(t, live.Options{})
	found := discovery(t, d)
	const info = "/cua.daemon.v1.DaemonService/GetInfo"
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	for name, c := range map[string]struct {
		want   int
		change func(*http.Request)
	}{
		"token":          {200, bearer(found.Token)},
		"no token":       {401, func(*http.Request) {}},
		"wrong token":    {401, bearer(found.Token[:len(found.Token)-1] + "x")},
		"empty token":    {401, bearer("")},
		"foreign host":   {403, func(r *http.Request) { bearer(found.Token)(r); r.Host = "example.test" }},
		"foreign origin": {401, func(r *http.Request) { r.Header.Set("Origin", "http://example.test") }},
	} {
		status, body := call(t, found.LoopbackURL, info, "{}", c.change)
		if status != c.want {
			t.Errorf("%s: status %d, want %d: %s", name, status, c.want, body)
		}
	}
	_, body := call(t, found.LoopbackURL, info, "{}", bearer(found.Token))
	var answer struct {
		Version string `json:"version"`
		PID     int    `json:"pid"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.PID != d.PID() || answer.Version != "test" {
		t.Errorf("%s: %v", body, err)
	}
}

func TestSocketsAndSecretsAreTheOwnersAlone(t *testing.T) {
	d := live.Start(t, live.Options{})
	for path, want := range map[string]os.FileMode{"": 0o700, "/brood.sock": 0o600, "/daemon.json": 0o600} {
		st, err := os.Stat(d.Home + path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, st.Mode().Perm(), want)
		}
	}
	d.Stop()
	for _, path := range []string{"/brood.sock", "/daemon.json"} {
		if _, err := os.Stat(d.Home + path); !os.IsNotExist(err) {
			t.Errorf("%s is still there after the daemon stopped: %v", path, err)
		}
	}
}

func TestOverTCPAsOverTheSocket(t *testing.T) {
	d := live.Start(t, live.Options{})
	found := discovery(t, d)
	c, err := client.Dial(within(t), client.Options{URL: found.LoopbackURL, Token: found.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ListSandboxes(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetSandbox(within(t), "nobody"); !errs.Is(err, errs.NotFound) {
		t.Errorf("err = %v", err)
	}
}
