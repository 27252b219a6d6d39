// Package errs holds the closed set of error codes that brood uses everywhere,
// and the error type that carries one.
//
// A code says what kind of failure it is; the message tells the person what
// was asked, what is, and what would work. Codes are mapped here to the exit
// codes of the command line; package wire maps them to the protocol. Both
// tables are proved total by tests.
//
// Code travels with errors.As: wrap freely with %w. The outermost code wins,
// so that a layer that knows better may say so. Match with CodeOf or Is,
// never by text. All functions are safe for concurrent use.
package errs
