// Package gvisor is the driver that runs sandboxes in gVisor, by a runtime
// program of brood's own, without root, KVM or anything installed.
//
// Each runtime in use (each content hash) has one holder and one launcher,
// with a folder of their own below the home's run folder; package launch
// speaks with them. A checkpoint is restored by the runtime that made it, so
// an upgrade of brood leaves what runs and what was saved alone. The driver
// keeps no state but connections and the memory of which launcher has which
// sandbox; it is safe for concurrent use.
package gvisor
