// Package artifact is a shared cache over the HTTP API that Turborepo's
// clients and servers speak, as plain storage: for each key one artifact of
// our own, a tar packed with zstd that holds the entry and its contents. So a
// team keeps the server it has; the artifacts of both programs lie side by
// side and neither reads the other's.
//
// What is fetched is checked before it is believed. A Cache is safe for
// concurrent use; Close it to close its connections.
package artifact
