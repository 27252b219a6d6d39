package artifact

import (
	"strings"
	"testing"

	"brood/internal/base/errs"
)

// TestAMissingTokenIsAskedForByTheRightName: TURBO_TOKEN does not count for a
// server that brood's own settings name.
func TestAMissingTokenIsAskedForByTheRightName(t *testing.T) {
	_, err := New(Config{API: "http://cache.invalid"})
	if !errs.Is(err, errs.Unauthenticated) || !strings.Contains(err.Error(), "set BROOD_CACHE_TOKEN") {
		t.Errorf("%v", err)
	}
}
