package worker

import (
	"bytes"
	"strings"
	"testing"
)

// chunked writes s in pieces of n bytes.
func chunked(t *testing.T, s string, n int, secrets ...string) string {
	t.Helper()
	var out bytes.Buffer
	var list [][]byte
	for _, x := range secrets {
		list = append(list, []byte(x))
	}
	m := newMasker(&out, list)
	for len(s) > 0 {
		k := min(n, len(s))
		if _, err := m.Write([]byte(s[:k])); err != nil {
			t.Fatal(err)
		}
		s = s[k:]
	}
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestMaskAcrossChunks(t *testing.T) {
	for _, c := range []struct {
		in, want string
		secrets  []string
	}{
		{"a hunter22 b", "a *** b", []string{"hunter22"}},
		{"hunter22hunter22", "******", []string{"hunter22"}},
		{"hunter2", "hunter2", []string{"hunter22"}},
		{"xxaaaaaaaaaaaaxx", "xx***xx", []string{"aaaaaa"}},
		{"abcdefghi", "***", []string{"abcdef", "defghi"}},
		{"abcdefXX", "***XX", []string{"abcdef", "cdefgh"}},
		{"abcdefgh", "***", []string{"abcdef", "cdefgh"}},
		{"secret1 and secret12", "*** and ***", []string{"secret1", "secret12"}},
		{"nothing here", "nothing here", nil},
		{"\x00\xffbinary\xfe", "\x00***\xfe", []string{"\xffbinary"}},
	} {
		for n := 1; n <= len(c.in); n++ {
			if got := chunked(t, c.in, n, c.secrets...); got != c.want {
				t.Errorf("%q in chunks of %d: %q, want %q", c.in, n, got, c.want)
			}
		}
	}
}

func TestWhatIsNoBeginningIsNotHeldBack(t *testing.T) {
	var out bytes.Buffer
	m := newMasker(&out, [][]byte{[]byte("hunter22")})
	if _, err := m.Write([]byte("Continue? ")); err != nil {
		t.Fatal(err)
	}
	if out.String() != "Continue? " {
		t.Errorf("held back: %q", out.String())
	}
	for range 10000 { // and never more than a secret's length, whatever comes
		if _, err := m.Write([]byte("hunter2")); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.held) >= len("hunter22") {
		t.Errorf("%d bytes are held", len(m.held))
	}
}

func TestSecretsOf(t *testing.T) {
	got := secretsOf(vars{
		"NPM_TOKEN": "tok-123456", "my_secret": "sssssss", "API_KEY": "short", "PLAIN": "visible1",
		"SSH_KEY": "line one\nline two\n", "db_password": "", "CREDENTIALS": "tok-123456",
	})
	var list []string
	for _, s := range got {
		list = append(list, string(s))
	}
	want := "line one|line one\nline two|line two|sssssss|tok-123456"
	if strings.Join(list, "|") != want {
		t.Errorf("%q", list)
	}
}

func FuzzMask(f *testing.F) {
	f.Add("a hunter22 b hunter22", "hunter22", "ter22 b", uint8(3))
	f.Add("aaaaaaaaaaaaaaaa", "aaaaaa", "aaaaaaaa", uint8(1))
	f.Fuzz(func(t *testing.T, in, one, two string, n uint8) {
		if len(in) > 500 || len(one) < shortestSecret || len(two) < shortestSecret || strings.ContainsAny(one+two, "*") {
			return
		}
		whole := chunked(t, in, max(1, len(in)), one, two)
		if got := chunked(t, in, int(n)+1, one, two); got != whole {
			t.Fatalf("in chunks of %d %q, whole %q", int(n)+1, got, whole)
		}
		if !strings.Contains(in, one) && !strings.Contains(in, two) && whole != in {
			t.Fatalf("%q became %q", in, whole)
		}
		if strings.Contains(strings.ReplaceAll(whole, "***", "\x00*\x00"), one) && !strings.Contains(one, "\x00") {
			t.Fatalf("%q is seen in %q", one, whole)
		}
	})
}

// pieces counts what is written at once.
type pieces struct {
	bytes.Buffer
	most int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.most = max(p.most, len(b))
	return p.Buffer.Write(b)
}

// TestALongLineIsPassedOnInPieces: no more is held than a chunk and a secret,
// and secrets are masked wherever the pieces of the line end.
func TestALongLineIsPassedOnInPieces(t *testing.T) {
	const chunk = 32 << 10
	secret := "correct horse battery staple"
	line := bytes.Repeat([]byte("x"), 300*chunk)
	for i := chunk; i < len(line); i += chunk {
		copy(line[i-1-i/chunk%len(secret):], secret) // over every border
	}
	var out pieces
	m := newMasker(&out, [][]byte{[]byte(secret), []byte("battery")})
	for i := 0; i < len(line); i += chunk {
		if _, err := m.Write(line[i : i+chunk]); err != nil {
			t.Fatal(err)
		}
		if len(m.held) > chunk || cap(m.held) > 4*chunk {
			t.Fatalf("%d bytes are held, in %d", len(m.held), cap(m.held))
		}
	}
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
	if out.most > chunk+len(secret) {
		t.Errorf("%d bytes at once", out.most)
	}
	if got, want := out.String(), strings.ReplaceAll(string(line), secret, "***"); got != want {
		t.Errorf("%d bytes, not %d: %d are masked of %d", len(got), len(want), strings.Count(got, "***"), strings.Count(want, "***"))
	}
}
