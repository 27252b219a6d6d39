// Package blobtest is what every server of the Remote Execution API's cache
// must do, as tests over the wire: it knows nothing of a server but its
// address, and asks of it what the protocol says and no more.
//
// Run is used from a test of the server's own. It stores blobs and results
// under digests of its own, so that it may run against a server in use.
package blobtest
