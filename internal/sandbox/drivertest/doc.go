// Package drivertest holds every sandbox.Driver to its contract. A driver's
// own test calls Run with what makes a fresh Subject; the suite starts real
// sandboxes, captures, forks and destroys them, and looks at state inside the
// guest through package guest.
//
// What runs inside is the program in package probe: Build makes it for drivers
// with a real kernel. A driver without one runs programs of the same names
// that answer alike.
//
// Every subtest has a Subject of its own and must leave it empty. Subtests run
// one after the other: what they do inside, they do in parallel where the
// contract says that it may be.
package drivertest
