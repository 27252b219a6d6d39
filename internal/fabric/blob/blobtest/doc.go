// Package blobtest is what every server of the Remote Execution API's cache
// must do, as tests over the wire: it knows nothing of a server but its
// address, and asks of it what the protocol says and no more.
//
// Servers depart from the letter here and there, and clients that want to work
// with them must not mind. Of bazel-remote 2.6.1 we know: in batches it answers
// Internal where InvalidArgument is due and takes a blob whose size is told
// wrong; it refuses a read limit, and an offset at the blob's end.
//
// Run is used from a test of the server's own. It stores blobs and results
// under digests of its own, so that it may run against a server in use.
package blobtest
