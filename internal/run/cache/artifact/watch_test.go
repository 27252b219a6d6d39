package artifact

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// drip is a server that takes everything and whose answer never ends: the
// beginning of a zstd frame that is passed over, and then a byte each half
// second.
type drip struct{ status int }

func (d drip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: d.status, Status: "said so", Body: io.NopCloser(io.MultiReader(strings.NewReader("\x50\x2a\x4d\x18\x00\x00\x00\x0f"), drops{r.Context()})), Request: r}, nil
}

type drops struct{ ctx context.Context } //nolint:containedctx // the request's

func (d drops) Read(p []byte) (int, error) {
	select {
	case <-time.After(500 * time.Millisecond):
		return copy(p[:1], []byte{0}), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

// dripping returns a cache whose server drips.
func dripping(t *testing.T, status int) *Cache {
	t.Helper()
	c, err := New(Config{API: "http://cache.invalid", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	c.client.Transport = drip{status}
	return c
}

func TestAnswersThatDripAreNotWaitedFor(t *testing.T) {
	local, err := store.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	e := &entry.Entry{Key: digest.Of([]byte("k")), Log: entry.Content{Digest: digest.Of(nil), Inline: []byte{}}}
	save := func(ctx context.Context, c *Cache) error { return c.Save(ctx, e, local) }
	look := func(ctx context.Context, c *Cache) error {
		_, err := c.Entry(ctx, e.Key, local)
		return err
	}
	for name, c := range map[string]struct {
		status int
		ask    func(context.Context, *Cache) error
		code   errs.Code
		text   string
	}{
		"stored":     {http.StatusOK, save, errs.OK, ""},
		"refused":    {http.StatusForbidden, save, errs.PermissionDenied, "said so"},
		"looked up":  {http.StatusOK, look, errs.DeadlineExceeded, "too slowly"},
		"not looked": {http.StatusNotFound, look, errs.NotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() // of the bubble's clock
				err := c.ask(t.Context(), dripping(t, c.status))
				if errs.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > 2*stall {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
