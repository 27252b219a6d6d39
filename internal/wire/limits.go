package wire

// MaxMessageBytes is the largest message that either end takes: a batch of
// 10,000 forks listed with its items is about 4 MiB, above gRPC's own limit.
const MaxMessageBytes = 64 << 20

// MaxChunkBytes is the largest piece of a stream of bytes in one message.
const MaxChunkBytes = 1 << 20

// Headers of ForkSandboxBatch (F47).
const (
	HeaderBatchID  = "brood-batch-id"  // response: the batch's id, before the first event
	HeaderBatchKey = "brood-batch-key" // request: the same key means the same batch
)
