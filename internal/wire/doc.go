// Package wire is the one place that knows how brood's values look outside:
// errors as google.rpc.Status with a DaemonErrorInfo, and messages as the JSON
// of the command line (F6, F7).
//
// The daemon turns an error into its wire form with Error, the client turns it
// back with FromError; the code survives exactly, also through a peer that
// passes on only reason and status. The tables are proved total by tests.
// What crosses is the text for the person who asked, cut to a length that fits
// into headers; causes and stacks stay. All functions are pure and safe for
// concurrent use.
package wire
