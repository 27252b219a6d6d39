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

func TestHomeInArguments(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"", nil},
		{"", []string{"sb", "ls", "--home"}},
		{"/a", []string{"--home", "/a", "sb", "ls"}},
		{"/a", []string{"sb", "ls", "--home=/a"}},
		{"/b", []string{"--home", "/a", "sb", "ls", "--home", "/b"}},
		{"", []string{"sb", "exec", "x", "--", "tool", "--home", "/a"}},
	} {
		if got := homeIn(c.args); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}
