package script

import (
	"os/exec"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	path := t.TempDir() + ":/usr/bin:/bin"
	for line, ok := range map[string]bool{
		"sh -c": true, "A=1 B=2 sh x && cat 'a b' \"c*\"": true, "cd dist && sh": true, "echo hello": true, "exit 3": true,
		"sh $HOME": false, "sh a;sh b": false, "sh | sh": false, "sh > f": false, "sh *.ts": false, "sh 'a": false, "sh `x`": false,
		"no-such-program-here": false, "echo -n x": false, "": false, "sh &&": false, "sh & sh": false, "sh || sh": false, "./local": false,
		"sh \"$A\"": false, "sh ~/x": false, "sh a\\ b": false, "A=1": false, "(sh)": false, "! sh": false, "sh \"a!b\"": false, "set -e": false,
	} {
		if why := plain(line, path); (why == "") != ok {
			t.Errorf("%q: %q", line, why)
		}
	}
}

// FuzzQuote: what the shell makes of a quoted word is the word.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "it's", `"$x`, "a\nb", "--f=*", "\\", "é", "a'b'c", "''", "~", "!", "{a,b}", "#x", "a=b", "[x]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\x00") || len(s) > 1000 {
			return
		}
		for name, quote := range map[string]func(string) string{"posix": quotePOSIX, "npm": quoteNPM, "pnpm": quotePnpm} {
			if name == "npm" && strings.ContainsAny(s, "[]{}!^") {
				continue // npm leaves them to the shell; so do we
			}
			out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+quote(s)+"; printf x").Output()
			if err != nil || string(out) != s+"x" {
				t.Fatalf("%s: %q became %q: %v", name, s, out, err)
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte("a=b\n# c\n[x]\nd[]=e\n//h/:_authToken=${T}\nf\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := config{}
		if c.parse(b, map[string]string{"T": "x", "L": "${L}"}) == nil {
			_ = c.only()
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"name":"@a/b","version":"1.0.0","bin":"./x","config":{"a":[1,2.50,1e3,null,true,{"b":"c\nd"}]},"scripts":{"x":"y","z":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest("package.json", b)
		if err != nil {
			return
		}
		m.namedBins()
		flatten("", m.fields, func(name string, v any) { _ = oneLine(text(v)) })
	})
}

func TestTextIsJavaScripts(t *testing.T) {
	m, err := parseManifest("p", []byte(`{"a":1.0,"b":1e3,"c":0.1,"d":true,"e":null,"f":"s","g":12345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"a": "1", "b": "1000", "c": "0.1", "d": "true", "e": "null", "f": "s"} {
		if got := text(m.fields[k]); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}
