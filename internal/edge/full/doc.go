// Package full is the whole program: all commands and the daemon. Package
// front, which people start, hands over to it.
package full
