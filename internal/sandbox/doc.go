// Package sandbox is the contract of brood's fork side: what a sandbox is,
// which states it has, and what a Driver must do to run one. Nothing in here
// runs.
//
// The parts around it: package host owns the sandboxes of one machine and
// calls a Driver; package guest is our program inside a sandbox, the same for
// every driver, reached over the byte channel that a Driver hands out;
// package drivertest holds every Driver to this contract.
package sandbox
