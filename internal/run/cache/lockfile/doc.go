// Package lockfile finds out which part of a package manager's lockfile a
// project can see: the packages that it and the workspace's root depend on,
// and all that those depend on. A change elsewhere in the file then leaves the
// project's keys alone.
//
// It knows pnpm-lock.yaml (formats 6 and 9) and package-lock.json (versions 2
// and 3). Of anything else, and of a file that has something unexpected, it
// says that it does not know, and the whole file counts; so a wrong guess is
// never a stale result. It does no I/O. A Lock is read-only and safe for
// concurrent use.
package lockfile
