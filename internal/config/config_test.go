package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/config"
)

func TestFileThenEnvironment(t *testing.T) {
	dir := t.TempDir()
	text := "listen: 127.0.0.1:7000\ncors: [\"http://a\"]\nmax_starting: 3\n"
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := config.Load(dir, []string{"BROOD_LISTEN=off", "BROOD_CORS=http://b,http://c", "BROOD_MAX_SANDBOXES=9", "X=1"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Listen != "off" || s.MaxStarting != 3 || s.MaxSandboxes != 9 || !slices.Equal(s.CORS, []string{"http://b", "http://c"}) {
		t.Errorf("%+v", s)
	}
	if s, err := config.Load(t.TempDir(), nil); err != nil || s.Listen != "" {
		t.Errorf("no file: %+v %v", s, err)
	}
}

func TestBadSettingsSayWhere(t *testing.T) {
	var s config.Settings
	err := config.Parse([]byte("listen: off\nmax_startin: 3\n"), &s)
	if err == nil || !strings.Contains(err.Error(), "max_startin") || !strings.Contains(err.Error(), "2") {
		t.Errorf("unknown key: %v", err)
	}
	if _, err := config.Load(t.TempDir(), []string{"BROOD_MAX_STARTING=many"}); errs.CodeOf(err) != errs.InvalidArgument {
		t.Errorf("bad number: %v", err)
	}
}

func TestNumbersThatMeanNothingAreRefused(t *testing.T) {
	for key, values := range map[string][]string{"max_starting": {"-1", "0"}, "max_sandboxes": {"-1"}, "identity_timeout": {"-1", "0"}} {
		for _, value := range values {
			dir, name := t.TempDir(), "BROOD_"+strings.ToUpper(key)
			if _, err := config.Load(dir, []string{name + "=" + value}); errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(key+": "+value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(dir, nil); errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), "config.yaml: "+key) {
				t.Errorf("%s: %s: %v", key, value, err)
			}
			if s, err := config.Load(dir, []string{name + "=3"}); err != nil {
				t.Errorf("the environment comes last: %+v %v", s, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("listen: x\ncors: [a]\n"))
	f.Add([]byte("{{{"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s config.Settings
		if err := config.Parse(b, &s); err != nil && errs.CodeOf(err) != errs.InvalidArgument {
			t.Fatal(err)
		}
	})
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"512M": 512, "2G": 2048, "2gib": 2048, "100": 100, "1T": 1 << 20, "64MB": 64, "1048576B": 1} {
		if got, err := config.ParseMiB("memory", text); err != nil || got != want {
			t.Errorf("ParseMiB(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "M", "-1", "1X", "1.5G", "99999999999T", "512K ", "10B", "GG"} {
		if got, err := config.ParseMiB("memory", bad); err == nil && bad != "512K " || errs.CodeOf(err) != errs.InvalidArgument && err != nil {
			t.Errorf("ParseMiB(%q) = %d, %v", bad, got, err)
		}
	}
	if got, err := config.ParseBytes("min-free", "5G"); err != nil || got != 5<<30 {
		t.Errorf("%d %v", got, err)
	}
}
