package reapi

import (
	"bytes"
	"context"
	"fmt"
	"io"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// Cache keeps results at a server.
type Cache struct{ client *blob.Client }

// New uses a client, which the caller closes.
func New(c *blob.Client) *Cache { return &Cache{client: c} }

// Name is the server's address.
func (c *Cache) Name() string { return c.client.Name() }

// marshal writes a message in the one way that gives its digest.
func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// action is the message whose digest stands for a key, with what it names.
type action struct {
	digest blob.Digest
	parts  map[blob.Digest][]byte
}

func actionOf(key run.Key) (*action, error) {
	a := &action{parts: map[blob.Digest][]byte{}}
	add := func(m proto.Message) (blob.Digest, error) {
		b, err := marshal(m)
		d := blob.Of(b)
		a.parts[d] = b
		return d, err
	}
	command, err := add(&rexec.Command{Arguments: []string{"brood", "run"}})
	if err != nil {
		return nil, err
	}
	inputs, err := add(&rexec.Directory{})
	if err != nil {
		return nil, err
	}
	a.digest, err = add(&rexec.Action{CommandDigest: command.Proto(), InputRootDigest: inputs.Proto(), Salt: []byte("brood " + string(key))})
	return a, err
}

// Entry fetches the result of a key, not its contents.
func (c *Cache) Entry(ctx context.Context, key run.Key, _ *store.Store) (*entry.Entry, error) {
	a, err := actionOf(key)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Result(ctx, a.digest)
	if err != nil {
		return nil, err
	}
	if r.GetExitCode() != 0 {
		return nil, errs.New(errs.DataLoss, "the result of %s is a failure", key.Short())
	}
	e, err := c.decode(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("the result of %s: %w", key.Short(), err)
	}
	e.Key = key
	e.Sort()
	return e, e.Check()
}

// Fetch brings contents into the local store.
func (c *Cache) Fetch(ctx context.Context, list []entry.Content, local *store.Store) error {
	want := make([]blob.Digest, len(list))
	for i, b := range list {
		want[i] = blob.Digest{Hash: b.Digest, Size: b.Size}
	}
	return c.client.Download(ctx, want, func(_ context.Context, d blob.Digest, r io.Reader) error {
		return local.Import(d.Hash, d.Size, r)
	})
}

// Save uploads a result: contents first, so that nobody sees a result of which
// something is missing.
func (c *Cache) Save(ctx context.Context, e *entry.Entry, local *store.Store) error {
	a, err := actionOf(e.Key)
	if err != nil {
		return err
	}
	r, own, err := encode(e)
	if err != nil {
		return fmt.Errorf("the result of %s: %w", e.Task, err)
	}
	for d, b := range a.parts {
		own[d] = b
	}
	var list []blob.Digest
	add := func(ct entry.Content) {
		d := blob.Digest{Hash: ct.Digest, Size: ct.Size}
		if ct.Inline != nil {
			own[d] = ct.Inline
		} else {
			list = append(list, d)
		}
	}
	add(e.Log)
	for _, f := range e.Files {
		add(f.Content)
	}
	for d := range own {
		list = append(list, d)
	}
	err = c.client.Upload(ctx, list, func(_ context.Context, d blob.Digest, w io.Writer) error {
		if b, ok := own[d]; ok {
			_, err := io.Copy(w, bytes.NewReader(b))
			return err
		}
		return local.Copy(w, d.Hash, d.Size)
	})
	if err != nil {
		return err
	}
	return c.client.SetResult(ctx, a.digest, r)
}
