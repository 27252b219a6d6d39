// Package pid1 is the program inside every sandbox: it starts and reaps
// programs, owns their terminals and output, freezes them around a capture,
// renews a fork's identity and copies files, as the daemon asks over one
// channel. The same code runs as a gVisor container's init and as a virtual
// machine's; nothing here knows which.
//
// It must never exit by itself, spin, or wait for the daemon: daemons come and
// go, and programs go on. When idle it blocks in one read and one epoll wait;
// no timer ticks. All that it holds for the daemon is bounded.
//
// A Server is one sandbox's state. Its parts have a mutex each, held over no
// wait but the short system calls that the mutex orders (a spawn, a signal, a
// read that does not block); the order is gate, children, exec, log. Every
// goroutine belongs to the server's group and ends with Serve's context.
package pid1
