// Package server is a cache for a team's first day: the Remote Execution API's
// cache over a folder, in one process.
//
// It serves Capabilities, ActionCache, ContentAddressableStorage and
// ByteStream, checks every blob that comes in against its digest, and hands
// out a result only while all that it names is there. It executes nothing,
// and it knows nothing of who runs what: whoever has the token may read and
// write. Without a token it listens on this machine only.
//
// Serve may run several times in a process, each over a folder of its own.
package server
