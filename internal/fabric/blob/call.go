package blob

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"brood/internal/base/errs"
)

const (
	// callLimit is how long one try of a call may take, without its bytes, and
	// how long a stream may stand still; firstLimit holds until the server has
	// answered anything: one that only accepts connections is not worth more.
	// slowest is the rate, in bytes a second, that bytes must reach.
	callLimit  = 10 * time.Second
	firstLimit = 5 * time.Second
	slowest    = 64 << 10
	// tries of one call, with a pause that doubles between them.
	tries      = 4
	firstPause = 100 * time.Millisecond
	longPause  = 10 * time.Second
)

// deadline bounds one try that moves so many bytes, and adds the headers.
func (c *Client) deadline(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	limit := callLimit
	if !c.answered.Load() {
		limit = firstLimit
	}
	limit += time.Duration(bytes/slowest) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		errs.New(errs.DeadlineExceeded, "the cache %s did not answer within %v", c.address, limit))
	return metadata.NewOutgoingContext(ctx, c.headers), cancel
}

// call tries f until it succeeds or trying again would not help.
func (c *Client) call(ctx context.Context, bytes int64, f func(context.Context) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := c.once(ctx, bytes, f)
		if err == nil {
			return nil
		}
		least, again := retryable(err)
		if !again || try == tries || ctx.Err() != nil || least > longPause {
			return fmt.Errorf("cache %s: %w", c.address, fromRPC(ctx, err))
		}
		wait := max(least, pause/2+rand.N(pause/2)) //nolint:gosec // jitter is no secret
		pause *= 2
		if err := waitFor(ctx, wait); err != nil {
			return fmt.Errorf("cache %s: %w", c.address, err)
		}
	}
}

// waitFor lets time pass; the end of ctx is an error.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) once(ctx context.Context, bytes int64, f func(context.Context) error) error {
	bounded, cancel := c.deadline(ctx, bytes)
	defer cancel()
	err := f(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return context.Cause(bounded)
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unavailable && ctx.Err() == nil {
		c.answered.Store(true)
	}
	return err
}

// watch ends the context when alive is not told of enough bytes for callLimit:
// of what the slowest rate brings in that time. A byte now and then is not
// enough, or one blob could take hours.
func (c *Client) watch(ctx context.Context) (watched context.Context, alive func(bytes int), stop func()) {
	limit := callLimit
	if !c.answered.Load() {
		limit = firstLimit
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(errs.New(errs.DeadlineExceeded, "nothing moves to or from the cache %s, or too slowly", c.address))
	})
	fresh := 0
	alive = func(bytes int) {
		if fresh += bytes; fresh >= enough {
			fresh = 0
			timer.Reset(callLimit)
		}
	}
	return ctx, alive, func() { timer.Stop(); cancel(nil) }
}

// enough is what shows that a stream goes on.
const enough = slowest * int(callLimit/time.Second)

// Limits are what a server says of itself, and what holds when it says
// nothing.
type Limits struct {
	// Batch is how many bytes of blobs may go in one message.
	Batch int64
	// MaxBlob is the largest blob that is taken; 0 is any.
	MaxBlob int64
	// Zstd says that blobs may be streamed compressed, ZstdBatch that they may
	// be sent so in messages.
	Zstd, ZstdBatch bool
	// Update says that results may be stored.
	Update bool
}

// batchMost keeps messages, with what is around the blobs, within the four
// megabytes that gRPC takes by default.
const batchMost = 4<<20 - 256<<10

// Limits asks the server once. One that has no Capabilities service is taken
// to have no limits but gRPC's and nothing optional.
func (c *Client) Limits(ctx context.Context) (Limits, error) {
	c.mu.Lock()
	known := c.limits
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var answer *rexec.ServerCapabilities
	err := c.call(ctx, 0, func(ctx context.Context) (err error) {
		answer, err = c.caps.GetCapabilities(ctx, &rexec.GetCapabilitiesRequest{InstanceName: c.instance})
		return err
	})
	l := Limits{Batch: batchMost, Update: true}
	switch {
	case errs.Is(err, errs.Unsupported):
	case err != nil:
		return Limits{}, err
	default:
		if l, err = readLimits(answer.GetCacheCapabilities()); err != nil {
			return Limits{}, fmt.Errorf("cache %s: %w", c.address, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = &l
	return l, nil
}

func readLimits(p *rexec.CacheCapabilities) (Limits, error) {
	if p == nil {
		return Limits{}, errs.New(errs.Unsupported, "the server executes, but has no cache")
	}
	if f := p.GetDigestFunctions(); len(f) > 0 && !slices.Contains(f, rexec.DigestFunction_SHA256) {
		return Limits{}, errs.New(errs.Unsupported, "the server does not know SHA-256, which brood uses: it has %.200s", fmt.Sprint(f))
	}
	l := Limits{
		Batch:     batchMost,
		MaxBlob:   max(0, p.GetMaxCasBlobSizeBytes()),
		Zstd:      slices.Contains(p.GetSupportedCompressors(), rexec.Compressor_ZSTD),
		ZstdBatch: slices.Contains(p.GetSupportedBatchUpdateCompressors(), rexec.Compressor_ZSTD),
		// Servers that say nothing about it mostly take results.
		Update: p.GetActionCacheUpdateCapabilities() == nil || p.GetActionCacheUpdateCapabilities().GetUpdateEnabled(),
	}
	if b := p.GetMaxBatchTotalSizeBytes(); b > 0 {
		l.Batch = min(l.Batch, b)
	}
	return l, nil
}

// Result returns what is stored for an action; NotFound is a miss.
func (c *Client) Result(ctx context.Context, action Digest) (*rexec.ActionResult, error) {
	var r *rexec.ActionResult
	err := c.call(ctx, 0, func(ctx context.Context) (err error) {
		r, err = c.actions.GetActionResult(ctx, &rexec.GetActionResultRequest{
			InstanceName: c.instance, ActionDigest: action.Proto(), DigestFunction: rexec.DigestFunction_SHA256,
		})
		return err
	})
	return r, err
}

// SetResult stores a result. Its blobs, and the action itself, must have been
// uploaded before.
func (c *Client) SetResult(ctx context.Context, action Digest, r *rexec.ActionResult) error {
	l, err := c.Limits(ctx)
	if err != nil {
		return err
	}
	if !l.Update {
		return errs.New(errs.PermissionDenied, "cache %s: results may be read there, not stored", c.address)
	}
	return c.call(ctx, 0, func(ctx context.Context) error {
		_, err := c.actions.UpdateActionResult(ctx, &rexec.UpdateActionResultRequest{
			InstanceName: c.instance, ActionDigest: action.Proto(), ActionResult: r, DigestFunction: rexec.DigestFunction_SHA256,
		})
		return err
	})
}

// asked is how many digests go in one question; at about 80 bytes each a
// message stays far below gRPC's limit.
const asked = 10_000

// Missing returns which blobs the server has not, each once.
func (c *Client) Missing(ctx context.Context, list []Digest) ([]Digest, error) {
	var missing []Digest
	for part := range slices.Chunk(distinct(list), asked) {
		request := &rexec.FindMissingBlobsRequest{InstanceName: c.instance, DigestFunction: rexec.DigestFunction_SHA256}
		wanted := make(map[Digest]bool, len(part))
		for _, d := range part {
			request.BlobDigests = append(request.BlobDigests, d.Proto())
			wanted[d] = true
		}
		var answer *rexec.FindMissingBlobsResponse
		err := c.call(ctx, 0, func(ctx context.Context) (err error) {
			answer, err = c.cas.FindMissingBlobs(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range answer.GetMissingBlobDigests() {
			d, err := FromProto(p)
			if err != nil || !wanted[d] {
				return nil, errs.New(errs.Internal, "cache %s: it misses a blob that it was not asked for: %.80q/%d", c.address, p.GetHash(), p.GetSizeBytes())
			}
			delete(wanted, d)
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// distinct drops repetitions and the empty blob, which every server has.
func distinct(list []Digest) []Digest {
	seen := make(map[Digest]bool, len(list))
	kept := make([]Digest, 0, len(list))
	for _, d := range list {
		if d != Empty && !seen[d] {
			seen[d] = true
			kept = append(kept, d)
		}
	}
	return kept
}
