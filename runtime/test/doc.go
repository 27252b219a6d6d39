// Package test runs real sandboxes through package launch and the built
// runtime program, as root and as an ordinary user, and kills what can die in
// the middle. It has no code of its own besides tests.
//
// The program is taken from $BROOD_RUNTIME, or built once into the user's cache
// directory.
package test
