package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// Config says which server is used.
type Config struct {
	// API is the server's address, Token what proves who we are, Team a slug
	// and TeamID an id; one of the two is enough, or none.
	API, Token, Team, TeamID string
	// Agent is sent as User-Agent.
	Agent string
}

// Cache is a server of artifacts.
type Cache struct {
	cfg    Config
	base   *url.URL
	client *http.Client

	answered atomic.Bool
}

// tries is how often an upload or a question is tried; stall is how long an
// exchange may take for the next pace of bytes, first the same until the server
// has answered anything: one that only accepts connections is not worth more.
// linger is how long what a server says beside its status is listened to.
const (
	tries  = 3
	stall  = 10 * time.Second
	pace   = 640 << 10
	first  = 5 * time.Second
	linger = time.Second
)

// New prepares to use a server; it connects at the first use.
func New(cfg Config) (*Cache, error) {
	u, err := url.Parse(cfg.API)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.New(errs.InvalidArgument, "the cache's address %q is no http(s) URL: name one that is", cfg.API)
	}
	if cfg.Token == "" {
		return nil, errs.New(errs.Unauthenticated, "the cache %s needs a token: set BROOD_CACHE_TOKEN (TURBO_TOKEN is for the cache that TURBO_API names)", u.Host)
	}
	// The bound of headers is one of messages too: errors name a status, or where
	// a server sends us.
	t := &http.Transport{MaxResponseHeaderBytes: 32 << 10, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	return &Cache{cfg: cfg, base: u, client: &http.Client{Transport: t}}, nil
}

// Close closes the connections.
func (c *Cache) Close() { c.client.CloseIdleConnections() }

// Name is the server's address.
func (c *Cache) Name() string { return c.base.Scheme + "://" + c.base.Host }

func (c *Cache) url(key run.Key) string {
	u := c.base.JoinPath("v8", "artifacts", string(key))
	q := u.Query()
	if c.cfg.TeamID != "" {
		q.Set("teamId", c.cfg.TeamID)
	}
	if c.cfg.Team != "" {
		q.Set("slug", c.cfg.Team)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// do asks, again when the server is busy or away. body is called for each try.
func (c *Cache) do(ctx context.Context, method string, key run.Key, body func() (io.Reader, int64, error), header http.Header) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, again, err := c.once(ctx, method, key, body, header)
		if err == nil || !again || try == tries {
			return resp, err
		}
		wait := time.NewTimer(time.Duration(try*try) * 200 * time.Millisecond)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Cache) once(ctx context.Context, method string, key run.Key, content func() (io.Reader, int64, error), header http.Header) (resp *http.Response, again bool, err error) {
	var r io.Reader
	size := int64(0)
	if content != nil {
		if r, size, err = content(); err != nil {
			return nil, false, err
		}
	}
	w := c.watch(ctx, size)
	defer func() {
		if resp == nil {
			w.stop()
		}
	}()
	if r != nil {
		r = &watchedBody{watch: w, Reader: r}
	}
	req, err := http.NewRequestWithContext(w.ctx, method, c.url(key), r)
	if err != nil {
		return nil, false, err
	}
	for name, v := range header {
		req.Header[name] = v
	}
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	req.Header.Set("User-Agent", c.cfg.Agent)
	resp, err = c.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		if w.ctx.Err() != nil {
			return nil, false, context.Cause(w.ctx)
		}
		return nil, true, errs.New(errs.Unavailable, "%w", err)
	}
	c.answered.Store(true)
	w.alive()
	body := &watchedBody{watch: w, Reader: resp.Body, end: resp.Body.Close}
	resp.Body = body
	if resp.StatusCode < 300 {
		return resp, false, nil
	}
	text := body.rest(300) // it only says more about the status
	_ = body.Close()
	code, again := codeOf(resp.StatusCode)
	return nil, again, errs.New(code, "it answered %.100s: %s", resp.Status, strings.TrimSpace(string(text)))
}

func codeOf(status int) (code errs.Code, again bool) {
	switch {
	case status == http.StatusNotFound:
		return errs.NotFound, false
	case status == http.StatusUnauthorized:
		return errs.Unauthenticated, false
	case status == http.StatusForbidden:
		return errs.PermissionDenied, false
	case status == http.StatusTooManyRequests || status >= 500:
		return errs.Unavailable, true
	case status == http.StatusRequestEntityTooLarge:
		return errs.ResourceExhausted, false
	}
	return errs.FailedPrecondition, false
}

// Entry fetches the artifact of a key and puts its contents into local.
func (c *Cache) Entry(ctx context.Context, key run.Key, local *store.Store) (*entry.Entry, error) {
	resp, err := c.do(ctx, http.MethodGet, key, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	e, err := unpack(resp.Body, local)
	if late := resp.Body.(*watchedBody).late(); err != nil && late != nil {
		err = late // and not that it was cut short
	}
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", key.Short(), err)
	}
	if e.Key != key {
		return nil, errs.New(errs.DataLoss, "artifact %s holds the result of %s", key.Short(), e.Key.Short())
	}
	return e, nil
}

// Fetch has nothing to bring: contents come along with their entry. It is asked
// only for what was lost since.
func (c *Cache) Fetch(context.Context, []entry.Content, *store.Store) error {
	return errs.New(errs.NotFound, "the content is not in the cache any more")
}

// Save uploads an artifact.
func (c *Cache) Save(ctx context.Context, e *entry.Entry, local *store.Store) error {
	f, err := os.CreateTemp("", "brood-artifact-")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(f.Name()); err != nil { // it lives as long as it is open
		return err
	}
	if err := pack(f, e, local); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	body := func() (io.Reader, int64, error) { return io.NewSectionReader(f, 0, size), size, nil }
	resp, err := c.do(ctx, http.MethodPut, e.Key, body, http.Header{
		"Content-Type":        {"application/octet-stream"},
		"X-Artifact-Duration": {strconv.FormatInt(e.Took.Milliseconds(), 10)},
	})
	if err != nil {
		return err
	}
	// The status says that it is stored. What follows is read so that the
	// connection is used again.
	resp.Body.(*watchedBody).rest(64 << 10)
	_ = resp.Body.Close()
	return nil
}

// The names in an artifact: the entry comes first.
const (
	entryName = "brood-entry"
	blobName  = "blobs/"
)

func pack(w io.Writer, e *entry.Entry, local *store.Store) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	head := e.Encode()
	add := func(name string, size int64, fill func(io.Writer) error) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
			return err
		}
		return fill(t)
	}
	err = add(entryName, int64(len(head)), func(w io.Writer) error { _, err := w.Write(head); return err })
	for _, b := range e.Blobs() {
		if err == nil {
			err = add(blobName+string(b.Digest), b.Size, func(w io.Writer) error { return local.Copy(w, b.Digest, b.Size) })
		}
	}
	if err == nil {
		err = t.Close()
	}
	return errors.Join(err, z.Close())
}

// spare is what an artifact may have beyond the contents that its entry names:
// what tar and zstd put around them.
const spare = 1 << 20

// budget reads no more than what is to be expected: an artifact may go on for
// ever, and bring nothing.
type budget struct {
	io.Reader
	left int64
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errs.New(errs.DataLoss, "it has more than its entry names")
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// unpack reads an artifact and puts its contents into local: those that the
// entry names, and only if they are what it names.
func unpack(r io.Reader, local *store.Store) (*entry.Entry, error) {
	packed := &budget{r, entry.Most + spare}
	z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(32<<20))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	plain := &budget{z, entry.Most + spare}
	t := tar.NewReader(plain)
	h, err := t.Next()
	if err != nil || h.Name != entryName || h.Size > entry.Most {
		return nil, errs.New(errs.DataLoss, "it is none of brood's: %w", errors.Join(err, tar.ErrHeader))
	}
	var head bytes.Buffer
	if _, err := io.Copy(&head, io.LimitReader(t, entry.Most)); err != nil {
		return nil, errs.New(errs.DataLoss, "it is cut short: %w", err)
	}
	e, err := entry.Decode(head.Bytes())
	if err != nil {
		return nil, err
	}
	missing := map[digest.Digest]int64{}
	var size int64
	for _, b := range e.Blobs() {
		missing[b.Digest] = b.Size
	}
	for _, n := range missing {
		if size += n + member; size < 0 || size > math.MaxInt64-spare {
			return nil, errs.New(errs.DataLoss, "its contents are larger than any disk")
		}
	}
	packed.left, plain.left = size+spare, size+spare
	for len(missing) > 0 {
		h, err := t.Next()
		if err != nil {
			return nil, errs.New(errs.DataLoss, "it is cut short: %w", err)
		}
		d := digest.Digest(strings.TrimPrefix(h.Name, blobName))
		size, wanted := missing[d]
		if !wanted {
			continue
		}
		delete(missing, d)
		if local.Has(d) {
			continue
		}
		if err := local.Import(d, size, t); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// member is what a content takes in tar beside its bytes: its header, that of
// PAX before it, and what fills the last block.
const member = 4 * 512
