package digest_test

import (
	"strings"
	"testing"

	"brood/internal/base/digest"
)

// The known answer is the SHA-256 of "abc" (FIPS 180-4).
const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

func TestKnownAnswer(t *testing.T) {
	if got := digest.Of([]byte("abc")); got != abc {
		t.Errorf("Of = %s", got)
	}
	d, n, err := digest.Read(strings.NewReader("abc"))
	if d != abc || n != 3 || err != nil {
		t.Errorf("Read = %s %d %v", d, n, err)
	}
	if d.Short() != abc[:12] || digest.Digest("x").Short() != "x" {
		t.Error("Short")
	}
}

func TestParse(t *testing.T) {
	if d, err := digest.Parse(abc); err != nil || d != abc {
		t.Error(err)
	}
	for _, bad := range []string{"", "abc", strings.ToUpper(abc), abc + "0", "../" + abc[3:], abc[:63] + "g"} {
		if _, err := digest.Parse(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}
