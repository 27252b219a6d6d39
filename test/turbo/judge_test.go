package turbo_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verdict is turbo's dry run, as far as it is compared.
type verdict struct {
	Packages []string  `json:"packages"`
	Tasks    []dryTask `json:"tasks"`
	EnvMode  string    `json:"envMode"`
	Global   struct {
		Environment environment `json:"environmentVariables"`
	} `json:"globalCacheInputs"`
}

type dryTask struct {
	ID           string            `json:"taskId"`
	Package      string            `json:"package"`
	Command      string            `json:"command"`
	Args         []string          `json:"cliArguments"`
	Directory    string            `json:"directory"`
	Dependencies []string          `json:"dependencies"`
	Dependents   []string          `json:"dependents"`
	With         []string          `json:"with"`
	Inputs       map[string]string `json:"inputs"`
	Framework    string            `json:"framework"`
	Environment  environment       `json:"environmentVariables"`
	Definition   struct {
		Outputs     []string `json:"outputs"`
		Inputs      []string `json:"inputs"`
		Cache       bool     `json:"cache"`
		Persistent  bool     `json:"persistent"`
		Interactive bool     `json:"interactive"`
		OutputLogs  string   `json:"outputLogs"`
		Env         []string `json:"env"`
		PassThrough []string `json:"passThroughEnv"`
	} `json:"resolvedTaskDefinition"`
}

type environment struct {
	Specified struct {
		Env         []string `json:"env"`
		PassThrough []string `json:"passThroughEnv"`
	} `json:"specified"`
	Configured []string `json:"configured"`
	Inferred   []string `json:"inferred"`
}

// program is a program that `make testdeps` fetched.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/node/bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: %s is not there: run make testdeps", path)
	}
	return path
}

// turbo asks for a dry run; refused says why turbo would not.
func (r *repository) turbo(t testing.TB, args []string) (answer *verdict, refused string) {
	t.Helper()
	names, rest := split(args)
	line := append(append([]string{"run"}, names...), "--dry=json")
	cmd := exec.CommandContext(t.Context(), program(t, "turbo"), append(line, rest...)...)
	cmd.Dir = filepath.Join(r.dir, r.at)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.home, "TURBO_TELEMETRY_DISABLED=1", "TURBO_NO_UPDATE_NOTIFIER=1", "DO_NOT_TRACK=1",
	}, r.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, stderr.String()
	}
	answer = &verdict{}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatalf("turbo %v: %v\n%s\n%s", cmd.Args, err, out, stderr.String())
	}
	return answer, ""
}

// split takes the names of tasks from the flags behind them.
func split(args []string) (names, rest []string) {
	for i, a := range args {
		if strings.HasPrefix(a, "-") {
			return args[:i], args[i:]
		}
	}
	return args, nil
}
