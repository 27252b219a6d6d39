// Package blob is small evictable content under its digest: the client of a
// cache that speaks version 2 of the Remote Execution API, and what client and
// server share of that protocol.
//
// It owns the connection, the batching, the retries and the checks: a blob
// that does not have its digest is an error with code DataLoss and never
// reaches its place. It knows nothing of tasks; what an action's digest stands
// for is the caller's. The server is package server, over package disk; what
// every server must do is package blobtest.
//
// Only SHA-256 is spoken. By the letter of the protocol: nothing here depends
// on the other side being ours.
//
// A Client is safe for concurrent use. Every call has a deadline of its own,
// within that of its context.
package blob
