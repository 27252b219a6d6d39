package home_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/home"
)

// What is not a home and not empty belongs to somebody: it is refused, and its
// mode and all in it stay as they are.
func TestAFolderOfSomethingElseIsNoHome(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sandboxes", "mydata", "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(dir); !errs.Is(err, errs.Unsupported) {
		t.Errorf("err = %v", err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("mode %v %v", st.Mode(), err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("there are %v", entries)
	}
}

// Settings may be there before the home is.
func TestSettingsMayComeFirst(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("listen: off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := home.Open(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestAHomeOfANewerBroodIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "home.json"), []byte(`{"format":1000}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(dir); !errs.Is(err, errs.Unsupported) {
		t.Errorf("err = %v", err)
	}
}

// However many open a new home at once, each has it.
func TestManyClaimOneHome(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "new")
		for i, err := range life.Each(t.Context(), 8, 8, func(context.Context, int) error {
			_, err := home.Open(dir)
			return err
		}) {
			if err != nil {
				t.Errorf("opener %d: %v", i, err)
			}
		}
	}
}

func TestAFileIsNoHome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(path); !errs.Is(err, errs.Unsupported) {
		t.Errorf("err = %v", err)
	}
}

// TestADamagedMarkerSaysWhatToDo, and what it says helps.
func TestADamagedMarkerSaysWhatToDo(t *testing.T) {
	for _, text := range []string{"", "rubbish", `{"format":0}`} {
		dir := t.TempDir()
		if err := home.Claim(dir); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "home.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := home.Claim(dir)
		if !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), `write {"format":1}`) || !strings.Contains(err.Error(), "BROOD_HOME") {
			t.Errorf("%q: %v", text, err)
		}
		if err := os.WriteFile(file, []byte(`{"format":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := home.Claim(dir); err != nil {
			t.Errorf("repaired as it says: %v", err)
		}
	}
}
