package client

import (
	"context"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
)

// Checkpoint is a saved sandbox.
type Checkpoint = broodv1.Checkpoint

// CheckpointOptions are the options of a checkpoint.
type CheckpointOptions struct {
	// Replace takes the name from the checkpoint that has it.
	Replace bool
	// Pin keeps it until it is unpinned.
	Pin bool
}

// CreateCheckpoint saves a sandbox under a name; the sandbox goes on.
func (c *Client) CreateCheckpoint(ctx context.Context, source, name string, o CheckpointOptions) (*broodv1.CreateCheckpointResponse, error) {
	return unary(ctx, c.checkpoints.CreateCheckpoint, &broodv1.CreateCheckpointRequest{Source: source, Name: name, Replace: o.Replace, Pin: o.Pin})
}

// ListCheckpoints lists the checkpoints by name; all shows those made for one
// batch too.
func (c *Client) ListCheckpoints(ctx context.Context, all bool) ([]*Checkpoint, error) {
	r, err := unary(ctx, c.checkpoints.ListCheckpoints, &broodv1.ListCheckpointsRequest{IncludeTemporary: all})
	return r.GetCheckpoints(), err
}

// GetCheckpoint returns all that is known of a checkpoint.
func (c *Client) GetCheckpoint(ctx context.Context, name string) (*broodv1.GetCheckpointResponse, error) {
	return unary(ctx, c.checkpoints.GetCheckpoint, &broodv1.GetCheckpointRequest{Name: name})
}

// RenameCheckpoint gives a checkpoint another name.
func (c *Client) RenameCheckpoint(ctx context.Context, name, newName string) (*Checkpoint, error) {
	r, err := unary(ctx, c.checkpoints.RenameCheckpoint, &broodv1.RenameCheckpointRequest{Name: name, NewName: newName})
	return r.GetCheckpoint(), err
}

// DeleteCheckpoint removes a checkpoint. One that is in use is refused, or
// with whenUnused removed later; deferred reports that.
func (c *Client) DeleteCheckpoint(ctx context.Context, name string, whenUnused bool) (deferred bool, err error) {
	r, err := unary(ctx, c.checkpoints.DeleteCheckpoint, &broodv1.DeleteCheckpointRequest{Name: name, WhenUnused: whenUnused})
	return r.GetDeferred(), err
}

// PinCheckpoint keeps a checkpoint from being removed.
func (c *Client) PinCheckpoint(ctx context.Context, name string) (*Checkpoint, error) {
	r, err := unary(ctx, c.checkpoints.PinCheckpoint, &broodv1.PinCheckpointRequest{Name: name})
	return r.GetCheckpoint(), err
}

// UnpinCheckpoint takes PinCheckpoint back.
func (c *Client) UnpinCheckpoint(ctx context.Context, name string) (*Checkpoint, error) {
	r, err := unary(ctx, c.checkpoints.UnpinCheckpoint, &broodv1.UnpinCheckpointRequest{Name: name})
	return r.GetCheckpoint(), err
}

// VerifyCheckpoint reads all of a checkpoint and compares it with what it was
// when it was made. DataLoss names the file that differs. progress may be nil.
func (c *Client) VerifyCheckpoint(ctx context.Context, name string, progress func(*broodv1.VerifyCheckpointProgress)) (*broodv1.VerifyCheckpointResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.checkpoints.VerifyCheckpoint(ctx, connect.NewRequest(&broodv1.VerifyCheckpointRequest{Name: name}))
	if err != nil {
		return nil, ended(ctx, err)
	}
	for s.Receive() {
		if r := s.Msg().GetResult(); r != nil {
			return r, nil
		}
		if p := s.Msg().GetProgress(); p != nil && progress != nil {
			progress(p)
		}
	}
	return nil, ended(ctx, streamEnd(s.Err()))
}

// Fork starts one sandbox from a checkpoint or a sandbox; an empty name is
// drawn. Many at once are ForkMany.
func (c *Client) Fork(ctx context.Context, source, name string) (*broodv1.ForkResponse, error) {
	return unary(ctx, c.checkpoints.Fork, &broodv1.ForkRequest{Source: source, Name: name})
}
