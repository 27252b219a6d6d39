package front

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
	"brood/internal/edge/full"
)

// TestStandInsAreWhatTheyStandFor: both programs have the same commands by the
// same names, so that it is not seen that there are two.
func TestStandInsAreWhatTheyStandFor(t *testing.T) {
	a := cli.New()
	compare(t, a.Tree(Commands(a)...), a.Tree(full.Commands(a, nil)...))
}

func compare(t *testing.T, got, want *cobra.Command) {
	t.Helper()
	if got.Name() != want.Name() || got.Short != want.Short || !slices.Equal(got.Aliases, want.Aliases) || got.Hidden != want.Hidden {
		t.Errorf("%s: %q %q, and whole %q %q", want.CommandPath(), got.Short, got.Aliases, want.Short, want.Aliases)
	}
	if got.DisableFlagParsing { // a stand-in
		return
	}
	if got.UsageString() != want.UsageString() {
		t.Errorf("%s: usage is\n%s\nand whole\n%s", want.CommandPath(), got.UsageString(), want.UsageString())
	}
	if len(got.Commands()) != len(want.Commands()) {
		t.Fatalf("%s has %d commands, and whole %d", want.CommandPath(), len(got.Commands()), len(want.Commands()))
	}
	for i, c := range got.Commands() {
		compare(t, c, want.Commands()[i])
	}
}

func TestWhatArgumentsSay(t *testing.T) {
	for _, c := range []struct {
		home string
		json bool
		args []string
	}{
		{"", false, nil},
		{"", false, []string{"sb", "ls", "--home"}},
		{"/a", true, []string{"--json", "--home", "/a", "sb", "ls"}},
		{"/a", true, []string{"sb", "ls", "--home=/a", "--json"}},
		{"/b", false, []string{"--home", "/a", "sb", "ls", "--home", "/b"}},
		{"", false, []string{"sb", "exec", "x", "--", "tool", "--home", "/a"}},
		{"", false, []string{"sb", "exec", "x", "tool", "--home", "/a", "--json"}},
		{"/h", false, []string{"--home", "/h", "sb", "exec", "-i", "x", "tool", "--home", "/a", "--json"}},
		{"/h", true, []string{"sb", "exec", "--home", "/h", "--json", "x", "tool", "--home", "/a"}},
		{"/h", false, []string{"sb", "create", "--home=/h", "host", "tool", "--home", "/a"}},
		{"--json", false, []string{"sb", "ls", "--home", "--json"}},
	} {
		if home, json := said(c.args); home != c.home || json != c.json {
			t.Errorf("%q: %q and %v, want %q and %v", c.args, home, json, c.home, c.json)
		}
	}
}
