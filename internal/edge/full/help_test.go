package full

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"brood/internal/edge/cli"
)

// TestHelp holds the help of every command against a golden, and what all of
// them must have.
func TestHelp(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	seen := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".txt"
		seen[name] = true
		checkHelp(t, cmd)
		golden(t, update, filepath.Join("testdata", "help", name), helpOf(t, cmd))
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(whole(cli.New()))
	files, err := os.ReadDir("testdata/help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[f.Name()] {
			t.Errorf("testdata/help/%s is the help of no command: remove it", f.Name())
		}
	}
}

func whole(a *cli.App) *cobra.Command { return a.Tree(Commands(a, nil)...) }

func helpOf(t *testing.T, cmd *cobra.Command) []byte {
	t.Helper()
	var out bytes.Buffer
	a := cli.New()
	a.Out, a.Err = &out, &out
	root := whole(a)
	root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "--help"))
	if err := root.Execute(); err != nil {
		t.Fatalf("%s --help: %v", cmd.CommandPath(), err)
	}
	return out.Bytes()
}

func checkHelp(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
		t.Errorf("%s needs a short and a long text and an example", cmd.CommandPath())
	}
	if cmd.Args == nil || cmd.RunE == nil {
		t.Errorf("%s does not check its arguments, or does nothing", cmd.CommandPath())
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("%s --%s has no text", cmd.CommandPath(), f.Name)
		}
		_, usage := pflag.UnquoteUsage(f)
		said := strings.Contains(usage, "default") || strings.Contains(usage, "; ") || f.DefValue != "" && f.DefValue != "0" && f.DefValue != "[]"
		if f.Value.Type() != "bool" && !said {
			t.Errorf("%s --%s does not say its default: %q", cmd.CommandPath(), f.Name, usage)
		}
	})
	for line := range strings.Lines(cmd.Long) {
		if utf8.RuneCountInString(line) > 85 {
			t.Errorf("%s: a line of its help is too long: %q", cmd.CommandPath(), line)
		}
	}
}

func golden(t *testing.T, update bool, path string, got []byte) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is seen; if it should be: go test ./internal/edge/full -update\nseen:\n%s\nwanted:\n%s", path, got, want)
	}
}
