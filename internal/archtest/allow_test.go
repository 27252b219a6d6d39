package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allow says which folders of this repository a folder's own code (not its
// tests) may import. A name that ends in /... stands for the folder and all
// below it. base is allowed everywhere and not listed.
var allow = map[string][]string{
	"internal/base/clean":   {},
	"internal/base/content": {},
	"internal/base/digest":  {},
	"internal/base/errs":    {},
	"internal/base/id":      {},
	"internal/base/inherit": {},
	"internal/base/lazy":    {},
	"internal/base/life":    {},

	"internal/home":    {},
	"internal/config":  {"internal/home"},
	"internal/payload": {"internal/home"},
	"internal/wire":    {"api/..."},
	"client":           {"api/...", "internal/wire", "internal/home"},

	"api/brood/v1":                              {"api/..."},
	"api/brood/v1/broodv1connect":               {"api/..."},
	"api/cua/daemon/v1":                         {"api/..."},
	"api/cua/daemon/v1/daemonv1connect":         {"api/..."},
	"internal/sandbox":                          {},
	"internal/sandbox/batch":                    {"internal/sandbox/roster", "internal/sandbox/lease"},
	"internal/sandbox/batch/exec":               {"internal/home", "internal/sandbox", "internal/sandbox/batch", "internal/sandbox/roster", "internal/sandbox/checkpoint", "internal/sandbox/host"},
	"internal/sandbox/roster":                   {},
	"internal/sandbox/lease":                    {},
	"internal/sandbox/guest":                    {"internal/sandbox/guest/proto", "internal/sandbox/guest/pack"},
	"internal/sandbox/guest/proto":              {},
	"internal/sandbox/guest/logs":               {},
	"internal/sandbox/guest/pack":               {},
	"internal/sandbox/guest/pid1":               {"internal/sandbox/guest/proto", "internal/sandbox/guest/logs", "internal/sandbox/guest/pack"},
	"internal/sandbox/image":                    {"internal/home", "internal/sandbox", "internal/sandbox/image/erofs"},
	"internal/sandbox/image/erofs":              {},
	"internal/sandbox/checkpoint":               {"internal/home", "internal/sandbox"},
	"internal/sandbox/host":                     {"internal/home", "internal/sandbox", "internal/sandbox/checkpoint", "internal/sandbox/image", "internal/sandbox/guest/...", "internal/sandbox/roster", "internal/sandbox/lease"},
	"internal/sandbox/drivertest":               {"internal/sandbox", "internal/sandbox/guest/...", "internal/sandbox/image", "internal/home"},
	"internal/sandbox/drivertest/probe":         {},
	"internal/sandbox/driver/fake":              {"internal/sandbox", "internal/sandbox/guest/..."},
	"internal/sandbox/driver/gvisor":            {"internal/sandbox", "internal/home", "internal/sandbox/driver/gvisor/..."},
	"internal/sandbox/driver/gvisor/launch":     {},
	"internal/sandbox/driver/gvisor/imagecheck": {},
	"internal/run":                              {},
	"internal/run/workspace":                    {"internal/run", "internal/config", "internal/run/workspace/source"},
	"internal/run/workspace/source":             {},
	"internal/run/graph":                        {"internal/run", "internal/run/workspace", "internal/run/workspace/source"},
	"internal/fabric/blob":                      {},
	"internal/fabric/blob/disk":                 {"internal/fabric/blob"},
	"internal/fabric/blob/server":               {"internal/fabric/blob", "internal/fabric/blob/disk"},
	"internal/fabric/blob/blobtest":             {"internal/fabric/blob"},
	"internal/run/worker":                       {"internal/run", "internal/run/worker/script"},
	"internal/run/worker/script":                {"internal/run"},
	"internal/run/dispatch":                     {"internal/run"},
	"internal/run/orchestrator":                 {"internal/run", "internal/run/dispatch"},
	"internal/edge/view":                        {"internal/run", "internal/run/orchestrator"},
	"internal/run/cache":                        {"internal/home", "internal/run", "internal/run/cache/..."},
	"internal/run/history":                      {"internal/home", "internal/run", "internal/run/cache/key"},
	"internal/run/cache/artifact":               {"internal/run", "internal/run/cache/entry", "internal/run/cache/store"},
	"internal/run/cache/reapi":                  {"internal/fabric/blob", "internal/run", "internal/run/cache/entry", "internal/run/cache/store"},
	"internal/run/cache/entry":                  {"internal/run"},
	"internal/run/cache/files":                  {"internal/run/cache/glob", "internal/run/cache/stamp"},
	"internal/run/cache/glob":                   {},
	"internal/run/cache/key":                    {"internal/run", "internal/run/cache/files", "internal/run/cache/glob", "internal/run/cache/lockfile", "internal/run/cache/stamp"},
	"internal/run/cache/lockfile":               {},
	"internal/run/cache/stamp":                  {},
	"internal/run/cache/store":                  {"internal/home"},
	"internal/program":                          {"internal/home"},
	"internal/program/pack":                     {},
	"internal/edge/cli":                         {"internal/home"},
	"internal/edge/runs":                        {"internal/edge/cli", "internal/edge/view", "internal/home", "internal/config", "internal/run", "internal/run/..."},
	"internal/edge/share":                       {"internal/edge/cli", "internal/edge/runs", "internal/config", "internal/run/cache/...", "internal/run/cache", "internal/fabric/blob/...", "internal/fabric/blob"},
	"internal/edge/forks":                       {"internal/edge/cli", "api/...", "client", "internal/wire", "internal/home", "internal/config"},
	"internal/edge/front":                       {"internal/edge/cli", "internal/edge/runs", "internal/program"},
	"internal/edge/full":                        {"internal/edge/cli", "internal/edge/runs", "internal/edge/share", "internal/edge/forks"},
	"cmd/brood":                                 {"internal/edge/front"},
	"cmd/brood-full":                            {"internal/edge/full", "internal/edge/forks", "internal/edge/daemon"},
	"cmd/brood-guest":                           {"internal/sandbox/guest/..."},
	"internal/archtest":                         {},
}

// anything is for folders that may import what they like: they only compose.
var anything = []string{"internal/edge/daemon", "test", "test/...", "tools", "tools/...", "internal/sim", "runtime/..."}

func TestImportsGoOneWay(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range tree(t) {
		if s.test || matches(s.pkg, anything) {
			continue
		}
		seen[s.pkg] = true
		allowed, ok := allow[s.pkg]
		if !ok {
			t.Errorf("%s: its folder has no row in the table of internal/archtest/allow_test.go: say what it may import", s.path)
			continue
		}
		for _, imp := range s.imports() {
			dir, ours := strings.CutPrefix(imp, module+"/")
			if ours && !strings.HasPrefix(dir, "internal/base/") && !matches(dir, allowed) {
				t.Errorf("%s imports %s, which %s may not", s.path, dir, s.pkg)
			}
			if strings.HasPrefix(s.pkg, "internal/base/") && strings.Contains(strings.Split(imp, "/")[0], ".") {
				t.Errorf("%s imports %s: base uses the standard library only", s.path, imp)
			}
		}
	}
	for pkg := range allow {
		if !seen[pkg] {
			t.Errorf("the table has a row for %s, which does not exist: remove it", pkg)
		}
	}
}

// TestTheStartIsShort: what people start links nothing that a run without a
// shared cache does not need.
func TestTheStartIsShort(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/brood").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, heavy := range []string{"net/http", "google.golang.org/", "connectrpc.com/", module + "/api/", module + "/internal/sandbox", module + "/internal/run/cache/reapi"} {
			if dep == heavy || strings.HasPrefix(dep, heavy) {
				t.Errorf("cmd/brood links %s", dep)
			}
		}
	}
}

// TestCapabilitiesAreStrangers holds in tests too: fork and run share the
// substrate and nothing else.
func TestCapabilitiesAreStrangers(t *testing.T) {
	for _, s := range tree(t) {
		for _, imp := range s.imports() {
			if strings.HasPrefix(s.pkg, "internal/sandbox") && strings.HasPrefix(imp, module+"/internal/run") ||
				strings.HasPrefix(s.pkg, "internal/run") && strings.HasPrefix(imp, module+"/internal/sandbox") {
				t.Errorf("%s imports %s: sandbox and run do not know each other", s.path, imp)
			}
			if !strings.HasPrefix(s.pkg, "runtime") && strings.HasPrefix(imp, "gvisor.dev/") {
				t.Errorf("%s imports %s: only runtime/ links gVisor", s.path, imp)
			}
		}
	}
}

func matches(dir string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		below, deep := strings.CutSuffix(p, "/...")
		return dir == below || deep && strings.HasPrefix(dir, below+"/")
	})
}
