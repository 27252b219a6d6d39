package main

import (
	"strings"
	"testing"
)

// TestPinned holds the real lock: both platforms have what the tests need.
func TestPinned(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		on, err := thisPlatform("linux", arch)
		if err != nil {
			t.Fatal(err)
		}
		packs, err := parseLock(pinned, on)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, p := range packs {
			found[p.name] = true
			if strings.HasPrefix(p.name, "node-") && p.name != on.nodePackage() {
				t.Errorf("%s: %s is for another platform", on, p)
			}
		}
		for _, name := range []string{on.nodePackage(), "@grpc/grpc-js", "@grpc/proto-loader"} {
			if !found[name] {
				t.Errorf("%s: %s is not pinned", on, name)
			}
		}
	}
	if strings.Contains(string(pinned), `"resolved"`) {
		t.Error("package-lock.json holds addresses: write it with npm install --package-lock-only --omit-lockfile-registry-resolved")
	}
}

func TestOtherPlatformsAreRefused(t *testing.T) {
	for _, p := range [][2]string{{"darwin", "arm64"}, {"linux", "riscv64"}} {
		if _, err := thisPlatform(p[0], p[1]); err == nil || !strings.Contains(err.Error(), p[1]) {
			t.Errorf("%v: %v, want a refusal", p, err)
		}
	}
}

func TestLockIsRefused(t *testing.T) {
	good := integrity([]byte("x"))
	cases := map[string]struct{ dir, version, integrity, says string }{
		"no hash":      {"node_modules/a", "1.0.0", "", "no SHA-512"},
		"weak hash":    {"node_modules/a", "1.0.0", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "no SHA-512"},
		"short hash":   {"node_modules/a", "1.0.0", "sha512-AAAA", "no SHA-512"},
		"outside":      {"node_modules/../../a", "1.0.0", good, "no folder below"},
		"not below":    {"packages/a", "1.0.0", good, "no folder below"},
		"unclean":      {"node_modules/a/", "1.0.0", good, "no folder below"},
		"odd name":     {"node_modules/a?b", "1.0.0", good, "no package"},
		"path as name": {"node_modules/a/b", "1.0.0", good, "no package"},
		"odd version":  {"node_modules/a", "1.0.0/../../b", good, "no package"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseLock(lockOf(t, map[string]map[string]any{c.dir: {"version": c.version, "integrity": c.integrity}}), testPlatform)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("parseLock: %v, want something with %q", err, c.says)
			}
		})
	}
	for name, raw := range map[string]string{"no JSON": "{", "old": `{"lockfileVersion":1}`, "empty": `{"lockfileVersion":3,"packages":{}}`} {
		if _, err := parseLock([]byte(raw), testPlatform); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

func TestTarballPath(t *testing.T) {
	for want, p := range map[string]pack{
		"long/-/long-5.3.2.tgz":              {name: "long", version: "5.3.2"},
		"@grpc/grpc-js/-/grpc-js-1.14.7.tgz": {name: "@grpc/grpc-js", version: "1.14.7"},
	} {
		if got := p.tarball(); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
	packs, err := parseLock(lockOf(t, map[string]map[string]any{
		"node_modules/a/node_modules/@s/b": {"version": "2.0.0", "integrity": integrity(nil)},
	}), testPlatform)
	if err != nil || len(packs) != 1 || packs[0].name != "@s/b" {
		t.Errorf("a nested package: %v, %v", packs, err)
	}
}

// TestBundledPackagesComeInside: what npm marks as bundled has no tarball.
func TestBundledPackagesComeInside(t *testing.T) {
	raw := lockOf(t, map[string]map[string]any{
		"node_modules/npm":                      {"version": "1.2.3", "integrity": integrity([]byte("npm"))},
		"node_modules/npm/node_modules/archive": {"version": "1.0.0", "inBundle": true},
	})
	packs, err := parseLock(raw, testPlatform)
	if err != nil || len(packs) != 1 || packs[0].name != "npm" {
		t.Errorf("%v, %v; want npm alone", packs, err)
	}
}
