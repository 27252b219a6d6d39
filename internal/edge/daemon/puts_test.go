package daemon

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// A sender that is gone leaves nothing: the copy ends with an error, which
// removes the half file, and is forgotten. One that says it is there goes on.
func TestPutOfASenderThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPuts()
		defer s.close()
		ended := make(chan error, 2)
		begin := func() string {
			id, err := s.begin(t.Context(), func(_ context.Context, r io.Reader) (proto.CopyResult, error) {
				_, err := io.Copy(io.Discard, r)
				ended <- err
				return proto.CopyResult{}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		gone, slow := begin(), begin()
		if _, err := s.write(t.Context(), gone, 0, []byte("half")); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(putIdle / 2)
			if _, err := s.write(t.Context(), slow, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !errs.Is(err, errs.DeadlineExceeded) {
				t.Errorf("the copy ended with %v", err)
			}
		default:
			t.Error("the copy goes on")
		}
		if _, err := s.write(t.Context(), gone, 4, []byte("more")); !errs.Is(err, errs.NotFound) {
			t.Errorf("written later: %v", err)
		}
		if _, err := s.end(t.Context(), slow, false); err != nil {
			t.Errorf("the slow one: %v", err)
		}
		if len(s.all) != 0 {
			t.Errorf("%d copies are left", len(s.all))
		}
	})
}
