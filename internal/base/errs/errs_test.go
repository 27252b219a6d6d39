package errs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/errs"
)

func TestEveryCodeHasNameAndExitCode(t *testing.T) {
	allowed := map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 130: true}
	seen := map[string]errs.Code{}
	for _, c := range errs.Codes() {
		if c.String() == "unknown code" {
			t.Errorf("code %d has no name", c)
		}
		if other, dup := seen[c.String()]; dup {
			t.Errorf("codes %d and %d share the name %q", c, other, c)
		}
		seen[c.String()] = c
		if !allowed[c.ExitCode()] {
			t.Errorf("%s: exit code %d is not a documented one", c, c.ExitCode())
		}
	}
	if errs.Code(9999).String() != "unknown code" || errs.Code(9999).ExitCode() != errs.ExitFailure {
		t.Error("an unknown code must be named so and fail")
	}
}

func TestCodeTravelsThroughWrapping(t *testing.T) {
	inner := errs.New(errs.NotFound, "sandbox %q: %w", "x", io.EOF)
	outer := fmt.Errorf("fork x: %w", inner)
	if got := errs.CodeOf(outer); got != errs.NotFound {
		t.Errorf("code = %v", got)
	}
	if !errors.Is(outer, io.EOF) {
		t.Error("the cause is lost")
	}
	if got := errs.CodeOf(errs.New(errs.Unavailable, "daemon: %w", outer)); got != errs.Unavailable {
		t.Errorf("the outermost code must win, got %v", got)
	}
	if outer.Error() != `fork x: sandbox "x": EOF` {
		t.Errorf("text = %q", outer.Error())
	}
}

func TestCodeOfForeignErrors(t *testing.T) {
	for err, want := range map[error]errs.Code{
		nil:                      errs.OK,
		io.EOF:                   errs.Internal,
		context.Canceled:         errs.Canceled,
		context.DeadlineExceeded: errs.DeadlineExceeded,
	} {
		if got := errs.CodeOf(err); got != want {
			t.Errorf("CodeOf(%v) = %v, want %v", err, got, want)
		}
	}
}

func TestWithKeepsCodeAndEarlierFacts(t *testing.T) {
	err := errs.With(errs.With(errs.New(errs.InsufficientDisk, "full"), "missing", "7"), "path", "/x")
	err = fmt.Errorf("checkpoint: %w", err)
	meta := errs.MetaOf(err)
	if meta["missing"] != "7" || meta["path"] != "/x" || errs.CodeOf(err) != errs.InsufficientDisk {
		t.Errorf("meta = %v, code = %v", meta, errs.CodeOf(err))
	}
	if errs.With(nil, "a", "b") != nil || errs.MetaOf(io.EOF) != nil {
		t.Error("no error, no facts")
	}
}

// A full disk is one wherever it is found, unless something else was said.
func TestFullDiskIsFoundInTheChain(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}
	for err, want := range map[error]errs.Code{
		full:                           errs.InsufficientDisk,
		fmt.Errorf("record: %w", full): errs.InsufficientDisk,
		errs.New(errs.Internal, "record: %w", full):                     errs.InsufficientDisk,
		errs.New(errs.FailedPrecondition, "record: %w", full):           errs.InsufficientDisk,
		errs.New(errs.Internal, "%w beside %w", io.EOF, syscall.EDQUOT): errs.InsufficientDisk,
		errors.Join(errs.New(errs.NotFound, "no sandbox"), full):        errs.NotFound,
		errs.New(errs.Canceled, "interrupted: %w", full):                errs.Canceled,
	} {
		if got := errs.CodeOf(err); got != want {
			t.Errorf("CodeOf(%v) = %v, want %v", err, got, want)
		}
		if got := strings.Contains(errs.Text(err), "the disk is full"); got != (want == errs.InsufficientDisk) {
			t.Errorf("Text(%v) = %q", err, errs.Text(err))
		}
	}
	if errs.CodeOf(full).ExitCode() != errs.ExitNoDisk {
		t.Error("a full disk has an exit code of its own")
	}
}
