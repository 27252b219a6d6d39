// Package id holds the distinct types of identifiers and the rule for names.
//
// IDs are values of their own type, so that two cannot be swapped. A Name is
// what people give (F11); the other IDs are drawn at random and never used
// again. Nothing here does I/O; randomness comes from the caller.
package id
