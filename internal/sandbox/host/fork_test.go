package host

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
)

// A folder that was mounted and is gone is named, and no damage is blamed.
func TestUnrestoredWithoutItsMount(t *testing.T) {
	h := &Host{p: Params{Log: slog.New(slog.DiscardHandler)}}
	dir := t.TempDir()
	here, gone := Mount{Source: dir, Target: "/src"}, Mount{Source: filepath.Join(dir, "gone"), Target: "/data"}
	for _, cause := range []error{errors.New("cannot open it"), errs.New(errs.NotFound, "%w", os.ErrNotExist)} {
		err := h.unrestored("base", []Mount{here, gone}, cause)
		if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), gone.Source+" mounted at /data") || strings.Contains(err.Error(), "damaged") {
			t.Errorf("%v: %v", errs.CodeOf(err), err)
		}
	}
	err := h.unrestored("base", []Mount{here}, errors.New("cannot open it"))
	if !strings.Contains(err.Error(), "verify base") || !strings.Contains(err.Error(), "what it has open below "+dir) {
		t.Errorf("with its mount there: %v", err)
	}
	if err := h.unrestored("base", nil, errors.New("bad")); !strings.HasSuffix(err.Error(), "says whether") {
		t.Errorf("without mounts: %v", err)
	}
}
