//go:build linux

package pid1_test

import (
	"slices"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

func TestProtectTakesPlacesInOrder(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	check(t, c.Protect(b.ctx, proto.Place{Path: "/src", ReadOnly: true}, proto.Place{Path: "/src/out"}))
	if want := []string{"/src true", "/src/out false"}; !slices.Equal(b.os.places, want) {
		t.Errorf("%q, want %q", b.os.places, want)
	}
	for _, bad := range []string{"", "src", "/", "/a/../b"} {
		if err := c.Protect(b.ctx, proto.Place{Path: bad, ReadOnly: true}); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
