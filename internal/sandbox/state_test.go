package sandbox_test

import (
	"encoding/json"
	"testing"

	"brood/internal/sandbox"
)

func TestStatesAreWrittenAsWords(t *testing.T) {
	for s := sandbox.Provisioning; s <= sandbox.Failed; s++ {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back sandbox.State
		if err := json.Unmarshal(b, &back); err != nil || back != s {
			t.Errorf("%s -> %v, %v", b, back, err)
		}
	}
	if _, err := json.Marshal(sandbox.State(0)); err == nil {
		t.Error("the zero state must not be written")
	}
	var s sandbox.State
	if err := json.Unmarshal([]byte(`"asleep"`), &s); err == nil {
		t.Error("an unknown state was read")
	}
}
