package lazy_test

import (
	"testing"

	"brood/internal/base/lazy"
)

func TestRegexpIsCompiledOnceAndWhenUsed(t *testing.T) {
	wrong := lazy.Regexp("(")
	defer func() {
		if recover() == nil {
			t.Error("a wrong expression was used")
		}
	}()
	right := lazy.Regexp("^a+$")
	first := right()
	if !first.MatchString("aa") || right() != first {
		t.Error("it does not match, or is compiled again")
	}
	wrong()
}
