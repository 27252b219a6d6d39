package fork_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/test/live"
)

// A daemon that comes and goes leaves nothing to read in the runtime's log.
func TestCallersThatLeaveAreNotLogged(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Kill() // while it waits for the sandbox's end
	d.Run()
	if err := d.Client.DeleteSandbox(within(t), "src"); err != nil {
		t.Fatal(err)
	}
	create(t, d, "next", "true")
	d.Stop()
	b, err := os.ReadFile(filepath.Join(d.Home, "logs", "runtime.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "connection:") {
		t.Errorf("runtime.log:\n%s", b)
	}
}

// Whoever follows an output goes on when the daemon is back, and has every
// line once.
func TestFollowedOutputSurvivesItsDaemon(t *testing.T) {
	for _, timestamps := range []bool{false, true} {
		d := live.Start(t, live.Options{})
		create(t, d, "src", "sh", "-c", "i=0; while :; do echo $i; printf %s $i >&2; i=$((i+1)); sleep 0.02; done")
		c, err := client.Dial(t.Context(), client.Options{Home: d.Home})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ends := map[int]func(){10: d.Kill, 30: d.Stop}
		var text []byte
		for m, err := range c.Logs(within(t), "src", client.LogOptions{Follow: true, Timestamps: timestamps}) {
			if err != nil {
				t.Fatal(err)
			}
			if m.GetStream() == broodv1.LogStream_LOG_STREAM_STDOUT {
				text = append(text, m.GetData()...)
			}
			lines := bytes.Count(text, []byte("\n"))
			if lines > 60 {
				break
			}
			for at, end := range ends {
				if lines >= at {
					delete(ends, at)
					end()
					d.Run()
				}
			}
		}
		for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			if line != strconv.Itoa(i) {
				t.Fatalf("timestamps %v: line %d is %q", timestamps, i, line)
			}
		}
		if len(ends) > 0 {
			t.Errorf("the daemon did not end %d times", len(ends))
		}
	}
}
