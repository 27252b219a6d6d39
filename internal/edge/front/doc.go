// Package front is the program that people start. It has the commands of runs;
// all others, and runs with a shared cache, are handed over to the whole
// program, which package program carries.
package front
