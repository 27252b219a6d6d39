package fork_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"brood/test/live"
)

// line is a line of fork-many --json.
type line struct {
	Placement *struct{ Count int }
	Item      *struct {
		Name  string
		Host  string
		Error string
	}
	Done *struct{ Ok, Failed int }
}

func lines(t testing.TB, text string) []line {
	t.Helper()
	var all []line
	for l := range strings.Lines(text) {
		var v line
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		all = append(all, v)
	}
	return all
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// slowCounter leaves some of the machine to 32 forks that each run two of it.
var slowCounter = strings.Replace(counter, "0.01", "0.5", 1)

// The walk of the README, with 32 forks: the sandbox's command and a program
// that was started by exec both go on in every fork from where they were.
func TestThirtyTwoForksFromTheCommandLine(t *testing.T) {
	d := live.Start(t, live.Options{})
	d.Brood(0, "sb", "create", "host", "--name", "src", "--", "python3", "-u", "-c", slowCounter)
	d.Brood(0, "sb", "exec", "-d", "src", "--", "python3", "-u", "-c", strings.ReplaceAll(slowCounter, "/tmp/n", "/tmp/m"))
	for _, file := range []string{"/tmp/n", "/tmp/m"} {
		live.Eventually(t, file+" is counted", func() bool {
			out, code := d.Exec("src", "cat", file)
			return code == 0 && out != ""
		})
	}
	before := [2]int{number(t, d.Brood(0, "sb", "exec", "src", "--", "cat", "/tmp/n")), number(t, d.Brood(0, "sb", "exec", "src", "--", "cat", "/tmp/m"))}
	d.Brood(0, "sb", "checkpoint", "src", "base")
	after := number(t, d.Brood(0, "sb", "exec", "src", "--", "cat", "/tmp/n"))

	all := lines(t, d.Brood(0, "sb", "fork-many", "base", "32", "--prefix", "f", "--json"))
	placements, ready := 0, map[string]bool{}
	for _, l := range all {
		if l.Placement != nil {
			placements++
		}
		if l.Item != nil && l.Item.Error == "" && l.Item.Host == "local" {
			ready[l.Item.Name] = true
		}
	}
	if last := all[len(all)-1].Done; placements != 1 || len(ready) != 32 || last == nil || last.Ok != 32 || last.Failed != 0 {
		t.Errorf("%d placements, %d ready, at the end %+v", placements, len(ready), last)
	}
	for i := range 32 {
		name := fmt.Sprint("f-", i)
		got := strings.Fields(d.Brood(0, "sb", "exec", name, "--", "sh", "-c", "hostname; cat /tmp/n; echo; cat /tmp/m"))
		if len(got) != 3 || got[0] != name {
			t.Fatalf("%s answers %q", name, got)
		}
		for j, file := range []string{"/tmp/n", "/tmp/m"} {
			first := number(t, got[j+1])
			if first < before[j] {
				t.Errorf("%s: %s counts from %d, in the source it was at %d", name, file, first, before[j])
			}
			live.Eventually(t, file+" goes on in "+name, func() bool { return number(t, d.Output(name, "cat", file)) > first })
		}
	}
	live.Eventually(t, "the source goes on", func() bool { return count(t, d, "src") > after })
	d.Brood(0, "sb", "rm", "--all")
	if left := live.Sandboxes(d.Home); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
}
