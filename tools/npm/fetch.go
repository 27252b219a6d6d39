package main

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	maxTarball = 256 << 20 // Node's is 53 MB
	tries      = 3
)

// fetcher downloads tarballs.
type fetcher struct {
	client   *http.Client
	registry string // ends in a slash
	stall    time.Duration
	pause    time.Duration // before the second try; longer before the third
}

func newFetcher(registry string) fetcher {
	return fetcher{
		client:   &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		registry: registry, stall: 30 * time.Second, pause: time.Second,
	}
}

// worthAnother marks an error that another try may not meet.
type worthAnother struct{ error }

func (w worthAnother) Unwrap() error { return w.error }

// get downloads the package's tarball into the file and checks its hash. On
// success the file stands at its beginning.
func (f fetcher) get(ctx context.Context, p pack, to *os.File) error {
	for try := 1; ; try++ {
		err := f.once(ctx, p, to)
		var again worthAnother
		if err == nil || !errors.As(err, &again) || try == tries || ctx.Err() != nil {
			return f.explain(ctx, p, err)
		}
		wait := time.NewTimer(time.Duration(try) * f.pause)
		select {
		case <-ctx.Done():
			wait.Stop()
		case <-wait.C:
		}
	}
}

func (f fetcher) once(ctx context.Context, p pack, to *os.File) error {
	if err := to.Truncate(0); err != nil {
		return err
	}
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// The clock starts anew with each piece that arrives, so that a slow line
	// is served and a dead one is not waited for.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(f.stall, func() { cancel(fmt.Errorf("nothing arrived for %v", f.stall)) })
	defer watch.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.registry+p.tarball(), nil)
	if err != nil {
		return err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return worthAnother{cause(ctx, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("the registry answered %s", resp.Status)
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			return worthAnother{err}
		}
		return err
	}
	sum := sha512.New()
	body := &readError{r: progress{resp.Body, func() { watch.Reset(f.stall) }}}
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(body, maxTarball+1))
	switch {
	case body.err != nil:
		return worthAnother{cause(ctx, body.err)}
	case err != nil:
		return err // of writing
	case n > maxTarball:
		return fmt.Errorf("the tarball is larger than %d MB", maxTarball>>20)
	}
	if got := [sha512.Size]byte(sum.Sum(nil)); got != p.sum {
		return fmt.Errorf("the tarball is not the pinned one: its hash is sha512-%s, pinned is sha512-%s: "+
			"a proxy may have answered instead, or the registry serves something else; nothing was unpacked",
			base64.StdEncoding.EncodeToString(got[:]), base64.StdEncoding.EncodeToString(p.sum[:]))
	}
	_, err = to.Seek(0, io.SeekStart)
	return err
}

// explain puts in front of an error what was done and what would help.
func (f fetcher) explain(ctx context.Context, p pack, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	shown := f.registry
	if u, perr := url.Parse(f.registry); perr == nil {
		shown = u.Redacted()
	}
	hint := ""
	var dns *net.DNSError
	var op *net.OpError
	if errors.As(err, &dns) || errors.As(err, &op) {
		hint = ": is this machine offline? NPM_CONFIG_REGISTRY and HTTPS_PROXY say where to ask"
	}
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err // its address is shown already, without a password
	}
	return fmt.Errorf("fetch %s from %s: %w%s", p, shown, err, hint)
}

// cause prefers why a context ended to the bare fact.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// progress calls on for each piece read.
type progress struct {
	r  io.Reader
	on func()
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.on()
	}
	return n, err
}

// readError keeps the error of reading apart from that of writing.
type readError struct {
	r   io.Reader
	err error
}

func (r *readError) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
