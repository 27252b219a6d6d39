package turbo_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What turbo's dry run has and brood's has not, or means another thing by
// (docs/turbo.md).
var notOurs = []string{
	"with",                                                                         // brood's are ids of tasks, turbo's as they are written
	"cliArguments",                                                                 // brood's are those a run gives to the task, turbo lists them at every task
	"id", "turboVersion", "globalCacheInputs", "frameworkInference", "user", "scm", // of the run
	"hashOfExternalDependencies", "logFile", "expandedOutputs", "environmentVariables", // of a task
	"cache.sha", "resolvedTaskDefinition.dependsOn", "resolvedTaskDefinition.interruptible",
}

// A program that reads turbo's --dry=json reads brood's: names, kinds and,
// but for the tasks' hashes, values.
func TestDryRunReadsAsTurbos(t *testing.T) {
	links := map[string]map[string]string{
		"workspace": {
			"packages/a/shared.txt": "../../shared.txt", "packages/a/folder": "../../folder", "packages/b/src": "../a/src",
			"packages/b/outside": "/etc/passwd",
		},
	}
	for name, files := range map[string]map[string]string{
		"workspace": {
			"folder/deep/y.txt": "y",
			"package.json":      `{"name":"root","workspaces":["packages/*"],"scripts":{"lint":"echo root"}}`,
			"turbo.json": `{"tasks":{"build":{"dependsOn":["^build"],"outputs":["dist/**","!dist/tmp/**"],"inputs":["$TURBO_DEFAULT$","$TURBO_ROOT$/shared.txt"],"env":["MODE"]},
				"test":{"dependsOn":["build"],"cache":false,"passThroughEnv":["CI_*"],"with":["lint"]},"lint":{"inputs":["src/**"],"outputLogs":"errors-only"},"//#lint":{}}}`,
			"shared.txt":              "x",
			"packages/a/package.json": `{"name":"a","version":"1.0.0","scripts":{"build":"echo a","test":"echo ta","lint":"echo la"},"dependencies":{"b":"*"}}`,
			"packages/a/src/x.txt":    "x",
			"packages/b/package.json": `{"name":"b","version":"1.0.0","scripts":{"test":"echo tb","lint":"echo lb"}}`,
		},
		"one package": {
			"package.json": `{"name":"root","scripts":{"build":"echo b","test":"echo t"}}`,
			"turbo.json":   `{"tasks":{"build":{"outputs":["dist/**"]},"test":{"dependsOn":["build"]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, "npm", files)
			for link, to := range links[name] {
				if err := os.Symlink(to, filepath.Join(r.dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"build", "test"}, {"test", "--", "-v"}} {
				theirs := r.dry(t, program(t, "turbo"), args)
				ours := r.dry(t, brood(t), args)
				tasks, others := taken(theirs, "tasks").([]any), taken(ours, "tasks").([]any)
				alike(t, args, "", theirs, ours)
				byID := map[any]map[string]any{}
				for _, o := range others {
					task := o.(map[string]any)
					byID[task["taskId"]] = task
				}
				for _, o := range tasks {
					task := o.(map[string]any)
					mine := byID[task["taskId"]]
					if mine == nil {
						t.Errorf("%v: no task %v in %v", args, task["taskId"], slices.Collect(maps.Keys(byID)))
						continue
					}
					alike(t, append(args, task["taskId"].(string)), "", task, mine)
				}
				if len(tasks) != len(others) {
					t.Errorf("%v: %d tasks, turbo has %d", args, len(others), len(tasks))
				}
			}
		})
	}
}

// brood is the program that `make build` made.
func brood(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/brood")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *repository) dry(t *testing.T, program string, args []string) map[string]any {
	t.Helper()
	at := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		at = i
	}
	cmd := exec.CommandContext(t.Context(), program, slices.Concat([]string{"run"}, args[:at], []string{"--dry=json"}, args[at:])...)
	cmd.Dir = r.dir
	cmd.Env = append(cmd.Environ(), "HOME="+r.home, "TURBO_TELEMETRY_DISABLED=1", "TURBO_NO_UPDATE_NOTIFIER=1", "DO_NOT_TRACK=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	var all map[string]any
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return all
}

func taken(m map[string]any, name string) any {
	v := m[name]
	delete(m, name)
	return v
}

// alike compares what both have, and that turbo has nothing else but what is
// listed.
func alike(t *testing.T, args []string, path string, theirs, ours map[string]any) {
	t.Helper()
	for name, want := range theirs {
		full := strings.TrimPrefix(path+"."+name, ".")
		got, there := ours[name]
		switch inside, nested := want.(map[string]any); {
		case slices.Contains(notOurs, full):
		case !there:
			t.Errorf("%v: %s is not there", args, full)
		case nested:
			alike(t, args, full, inside, got.(map[string]any))
		case full == "hash":
			if reflect.TypeOf(got) != reflect.TypeOf(want) {
				t.Errorf("%v: %s is %v, in turbo %v", args, full, got, want)
			}
		case want == nil: // an empty list
			if list, ok := got.([]any); !ok || len(list) > 0 {
				t.Errorf("%v: %s is %v, in turbo null", args, full, got)
			}
		case !reflect.DeepEqual(ordered(got), ordered(want)):
			t.Errorf("%v: %s is %v, in turbo %v", args, full, got, want)
		}
	}
}

// ordered sorts a list of texts.
func ordered(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	return slices.SortedFunc(slices.Values(list), func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
}
