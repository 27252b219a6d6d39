package guest

import "brood/internal/sandbox/guest/proto"

// The messages of the protocol that callers fill in or get.
//
//nolint:revive // each is described where it is defined, in package proto
type (
	Command        = proto.Command
	StartArgs      = proto.StartArgs
	ExecArgs       = proto.ExecArgs
	ExecInfo       = proto.ExecInfo
	ExitStatus     = proto.ExitStatus
	AttachArgs     = proto.AttachArgs
	FreezeArgs     = proto.FreezeArgs
	FreezeResult   = proto.FreezeResult
	IdentityArgs   = proto.IdentityArgs
	IdentityResult = proto.IdentityResult
	Renewed        = proto.Renewed
	PutArgs        = proto.PutArgs
	GetArgs        = proto.GetArgs
	StatArgs       = proto.StatArgs
	StatResult     = proto.StatResult
	CopyResult     = proto.CopyResult
	Process        = proto.Process
	HelloResult    = proto.HelloResult
)
