// Package graph selects the tasks of a run from a workspace and orders them.
//
// It owns filters, --affected, --only and --exclude-dependencies, the edges
// between tasks, and the refusal of cycles. It runs nothing but git, to ask which
// files changed, and that only for a selection that depends on it.
//
// A Graph is read-only and safe for concurrent use. Equal workspaces and
// selections give equal graphs, in the same order.
package graph
