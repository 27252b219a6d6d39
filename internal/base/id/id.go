package id

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"brood/internal/base/errs"
)

// Name is the name of a sandbox, checkpoint or machine as people write it:
// unique per machine and kind, at most 63 characters of a-z, 0-9 and '-',
// beginning and ending with a letter or digit.
type Name string

// Sandbox identifies one life of a sandbox. It is random and never reused,
// also when its name is.
type Sandbox string

// Batch identifies a batch.
type Batch string

// Machine names a machine; Local is this one.
type Machine string

// Exec identifies a command run in a sandbox.
type Exec string

// Runtime is the content hash of a driver's program.
type Runtime string

// Local is this machine in every host field and map of the protocol.
const Local Machine = "local"

// MaxName is the longest name in characters: a DNS label (RFC 1035).
const MaxName = 63

// ParseName checks a name that came from outside. kind is the noun for the
// message.
func ParseName(kind, s string) (Name, error) {
	if ok := validName(s); !ok {
		return "", errs.New(errs.InvalidArgument,
			"%s name %q is not valid: use 1 to %d of a-z, 0-9 and '-', beginning and ending with a letter or digit", kind, clip(s), MaxName)
	}
	return Name(s), nil
}

func validName(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		inner := c == '-' && i > 0 && i < len(s)-1
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !inner {
			return false
		}
	}
	return true
}

// clip keeps messages readable when the name is not.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// Random returns n random bytes as lower-case hex.
func Random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

// NewSandbox draws the id of a new sandbox.
func NewSandbox() Sandbox { return Sandbox("sb-" + Random(8)) }

// NewBatch draws the id of a new batch.
func NewBatch() Batch { return Batch("b-" + Random(8)) }

// NewExec draws the id of a new exec.
func NewExec() Exec { return Exec("x-" + Random(8)) }

// Plain reports whether s is safe as one path element made by brood itself:
// what NewSandbox, NewBatch and NewExec return.
func Plain(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s[0] != '-'
}

// Project is the name of a project in a workspace: what its package.json or
// brood.yaml calls it; "//" is the root.
type Project string

// RootProject is the workspace's root as a project.
const RootProject Project = "//"

// Task names a task in a workspace: project, "#", name.
type Task string

// TaskOf joins a project and the name of one of its tasks.
func TaskOf(p Project, name string) Task { return Task(string(p) + "#" + name) }

// Split takes a task's ID apart. The name of a task has no "#", that of a
// project may.
func (t Task) Split() (Project, string) {
	at := strings.LastIndexByte(string(t), '#')
	if at < 0 {
		return "", string(t)
	}
	return Project(t[:at]), string(t[at+1:])
}
