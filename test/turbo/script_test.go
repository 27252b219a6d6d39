package turbo_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestAgrees plays the scripts of testdata. Their words, one a line:
//
//	managers NAME…   the package managers to play it with; npm if unsaid
//	run ARGS…        both are asked, and must agree, also in refusing
//	refused ARGS…    turbo refuses it, brood means not to
//	refuses ARGS…    brood refuses it, turbo does not
//	env NAME=VALUE   for what follows
//	cd FOLDER        where the user stands; "." is the root
//	write FILE TEXT  writes a file; commit commits all; git ARGS… runs git
func TestAgrees(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		script, with := read(string(archive.Comment))
		for _, manager := range with {
			t.Run(name+"/"+manager, func(t *testing.T) {
				t.Parallel()
				tree := map[string]string{}
				for _, f := range archive.Files {
					tree[f.Name] = string(f.Data)
				}
				r := newRepository(t, manager, tree)
				for _, words := range script {
					r.step(t, words)
				}
			})
		}
	}
}

// read takes a script apart.
func read(comment string) (script [][]string, managers []string) {
	managers = []string{"npm"}
	for _, line := range strings.Split(comment, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "managers":
			managers = words[1:]
		default:
			script = append(script, words)
		}
	}
	return script, managers
}

func (r *repository) step(t *testing.T, words []string) {
	t.Helper()
	args := words[1:]
	switch words[0] {
	case "run":
		r.agree(t, args)
	case "refused":
		if answer, _ := r.turbo(t, args); answer != nil {
			t.Errorf("%v: turbo takes it after all: compare it", args)
		}
		if _, _, err := r.ours(t, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	case "refuses":
		if answer, why := r.turbo(t, args); answer == nil {
			t.Errorf("%v: turbo refuses it too: compare it: %s", args, why)
		}
		if _, _, err := r.ours(t, args); err == nil {
			t.Errorf("%v: it was taken", args)
		}
	case "env":
		r.env = append(r.env, args[0])
	case "cd":
		r.at = args[0]
	case "write":
		r.write(t, args[0], strings.Join(args[1:], " ")+"\n")
	case "commit":
		r.commit(t)
	case "git":
		r.git(t, args...)
	default:
		t.Fatalf("unknown word %q", words[0])
	}
}
