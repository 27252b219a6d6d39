//go:build linux

package node

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "brood/api/cua/daemon/v1"
)

// TestScriptPassesWhatIsRight holds that the script has no wishes beyond the
// contract, so that the failures below are the spoiled rule's.
func TestScriptPassesWhatIsRight(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		target, token := new(fake).serve(t, network)
		stdout, stderr, err := runNode(t, nil, "batch.mjs", target, token, "base", "5")
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", network, err, stderr, stdout)
		}
	}
}

type all = []*v1.ForkSandboxBatchResponse

// A batch of 5 in groups of 3 has these events: placements 0 and 1, items 4
// to 0, done.
func TestScriptNoticesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		spoil spoil
		says  string
	}{
		"item before its placement": {spoil{events: func(e all) all { e[1], e[2] = e[2], e[1]; return e }}, "before the placement"},
		"more items than placed":    {spoil{events: edit(0, func(r *v1.ForkSandboxBatchResponse) { r.GetPlacement().Count = 1 })}, "before the placement"},
		"placed too often":          {spoil{events: func(e all) all { return slices.Insert(e, 1, e[0]) }}, "more forks of a group"},
		"no reason":                 {spoil{events: edit(0, func(r *v1.ForkSandboxBatchResponse) { r.GetPlacement().Reason = "" })}, "not filled in"},
		"item missing":              {spoil{events: func(e all) all { return slices.Delete(e, 2, 3) }}, "without an item"},
		"item twice":                {spoil{events: func(e all) all { return slices.Insert(e, 3, e[2]) }}, "second item"},
		"index beyond":              {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) { r.GetItem().Index = 5 })}, "beyond the batch"},
		"wrong group":               {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) { r.GetItem().Group = 0 })}, "wrong group"},
		"wrong name":                {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) { r.GetItem().Name = "x-4" })}, "not asked for"},
		"no sandbox":                {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) { r.Sandbox = nil })}, "without its sandbox"},
		"not running": {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) {
			r.Sandbox.State = v1.SandboxState_SANDBOX_STATE_PROVISIONING
		})}, "does not run"},
		"failure without a code": {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) { r.GetItem().Error = "x" })}, "without its code"},
		"failed but handed out": {spoil{events: edit(2, func(r *v1.ForkSandboxBatchResponse) {
			r.GetItem().Error, r.GetItem().ErrorCode = "x", "fork_failed"
		})}, "handed out"},
		"failed fork": {spoil{events: failOne}, "forks failed"},
		"no done":     {spoil{events: func(e all) all { return e[:len(e)-1] }}, "without done"},
		"done twice":  {spoil{events: func(e all) all { return append(e, e[len(e)-1]) }}, "after done"},
		"done early":  {spoil{events: func(e all) all { n := len(e); e[n-1], e[n-2] = e[n-2], e[n-1]; return e }}, "without an item"},
		"item late":   {spoil{events: func(e all) all { return append(e, e[2]) }}, "after done"},
		"miscounted":  {spoil{events: edit(-1, func(r *v1.ForkSandboxBatchResponse) { r.GetDone().Ok = 1 })}, "miscounts"},
		"other host":  {spoil{events: edit(-1, func(r *v1.ForkSandboxBatchResponse) { r.GetDone().PerHost = map[string]uint32{"x": 5} })}, "per_host"},
		"too parallel": {spoil{events: edit(-1, func(r *v1.ForkSandboxBatchResponse) {
			r.GetDone().PeakParallel = map[string]uint32{"local": 5}
		})}, "at once than asked"},
		"empty event":     {spoil{events: func(e all) all { return slices.Insert(e, 1, &v1.ForkSandboxBatchResponse{}) }}, "none of"},
		"no header":       {spoil{noHeader: true}, "brood-batch-id is missing"},
		"key forgotten":   {spoil{noKey: true}, "made another batch"},
		"gap in sequence": {spoil{gap: true}, "gap"},
		"wrong hostname":  {spoil{hostname: "src"}, "believes it is"},
		"open door":       {spoil{open: true}, "without the right token"},
		"lenient":         {spoil{lenient: true}, "not refused"},
		"sick":            {spoil{sick: true}, "health says"},
		"mute":            {spoil{mute: true}, "does not list"},
		"two minds":       {spoil{pid: 8}, "differs by protocol"},
	}
	var asked bytes.Buffer
	for name, c := range cases {
		target, token := (&fake{spoil: c.spoil}).serve(t, "tcp")
		if err := json.NewEncoder(&asked).Encode(map[string]any{"name": name, "args": []string{target, token, "base", "5"}}); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, err := runNode(t, &asked, "each.mjs")
	if err != nil {
		t.Fatalf("each.mjs: %v\n%s\n%s", err, stderr, stdout)
	}
	heard := map[string]string{}
	for line := range strings.Lines(stderr) {
		var answer struct{ Name, Says string }
		if json.Unmarshal([]byte(line), &answer) == nil && answer.Name != "" {
			heard[answer.Name] = answer.Says
		}
	}
	for name, c := range cases {
		if says := heard[name]; !strings.HasPrefix(says, "broken: ") || !strings.Contains(says, c.says) {
			t.Errorf("%s: the script says %q, want something with %q", name, says, c.says)
		}
	}
}

// failOne makes the first item a failure that is told as it should be.
func failOne(e all) all {
	e = edit(2, func(r *v1.ForkSandboxBatchResponse) {
		i := r.GetItem()
		i.Error, i.ErrorCode, i.Space, r.Sandbox = "injected", "fork_failed", "", nil
	})(e)
	return edit(-1, func(r *v1.ForkSandboxBatchResponse) {
		d := r.GetDone()
		d.Ok, d.Failed, d.PerHost["local"] = d.Ok-1, 1, d.PerHost["local"]-1
	})(e)
}
