// Package archtest proves the rules of the house by reading the source of the
// whole repository: who may import whom, that every package says what it is,
// that deciders are pure, that goroutines are owned and tests do not sleep.
//
// It holds tests only. A new package fails until the table in allow_test.go
// has a row for it, which is the moment to think about where it belongs.
package archtest
