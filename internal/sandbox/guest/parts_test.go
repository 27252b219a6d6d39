package guest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// A clock is moved only when it is surely off: the way there and back may
// have taken longer than what is asked for.
func TestClockStepOnlyWhenSurelyOff(t *testing.T) {
	base := time.Unix(1_000_000, 0)
	for _, tt := range []struct{ took, off, want time.Duration }{
		{0, 0, 0},
		{time.Millisecond, 90 * time.Millisecond, 0},
		{time.Millisecond, time.Hour, -time.Hour},
		{time.Millisecond, -time.Hour, time.Hour},
		{10 * time.Second, 4 * time.Second, 0},
		{10 * time.Second, -4 * time.Second, 0},
		{time.Second, 601 * time.Millisecond, -601 * time.Millisecond},
	} {
		middle := base.Add(tt.took / 2)
		if got := clockStep(base, middle.Add(tt.off), base.Add(tt.took)); got != tt.want {
			t.Errorf("took %v, off %v: step %v, want %v", tt.took, tt.off, got, tt.want)
		}
	}
}

func TestPlaceIsWhereCpWouldPutIt(t *testing.T) {
	for _, tt := range []struct {
		in   placing
		want placed
		code errs.Code
	}{
		{placing{base: "f", to: "/d", exists: true, toFolder: true}, placed{"/d", "f"}, errs.OK},
		{placing{base: "f", to: "/d/g"}, placed{"/d", "g"}, errs.OK},
		{placing{base: "f", to: "/d/g", exists: true}, placed{"/d", "g"}, errs.OK},
		{placing{base: "f", to: "/d/"}, placed{}, errs.NotFound},
		{placing{folder: true, base: "s", to: "/d", exists: true, toFolder: true}, placed{"/d", "s"}, errs.OK},
		{placing{folder: true, base: "s", to: "/d/"}, placed{"/", "d"}, errs.OK},
		{placing{folder: true, content: true, base: "s", to: "/d", exists: true, toFolder: true}, placed{"/d", "."}, errs.OK},
		{placing{folder: true, content: true, base: "s", to: "/new"}, placed{"/", "new"}, errs.OK},
		{placing{folder: true, base: "s", to: "/f", exists: true}, placed{}, errs.FailedPrecondition},
		{placing{folder: true, base: "/", to: "/d", exists: true, toFolder: true}, placed{}, errs.InvalidArgument},
	} {
		got, err := place(tt.in)
		if got != tt.want || errs.CodeOf(err) != tt.code {
			t.Errorf("%+v: %+v, %v", tt.in, got, err)
		}
	}
}

// wire is a guest that says what it was given to say.
type wire struct {
	io.Reader
	wrote bytes.Buffer
}

func (w *wire) Write(p []byte) (int, error) { return w.wrote.Write(p) }
func (w *wire) Close() error                { return nil }

func TestResyncSkipsWhatIsNotForIt(t *testing.T) {
	magic, nonce := bytes.Repeat([]byte{7}, proto.MagicSize), bytes.Repeat([]byte{7, 8}, proto.NonceSize/2)
	answer := append(append([]byte{}, magic...), nonce...)
	other := append(append([]byte{}, magic...), make([]byte, proto.NonceSize)...)
	said := append(append(append([]byte("half a frame"), other...), magic[:9]...), answer...)
	w := &wire{Reader: bytes.NewReader(append(said, "and then"...))}
	c, err := resync(w, magic, nonce)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "and then" {
		t.Fatalf("%q, %v", got, err)
	}
	if !bytes.Equal(w.wrote.Bytes(), answer) {
		t.Fatalf("it said %v", w.wrote.Bytes())
	}
	if _, err := resync(&wire{Reader: bytes.NewReader(other)}, magic, nonce); !errors.Is(err, io.EOF) {
		t.Fatalf("a guest that answers somebody else: %v", err)
	}
}

// What the multiplexer writes as a header and its data goes out as one
// record; what looks like a header inside data does not wait for more.
func TestChannelJoinsHeaderAndData(t *testing.T) {
	w := &wire{}
	c := &channel{conn: w}
	header := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}
	update := []byte{0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}
	var want []byte
	for _, p := range [][]byte{header, header, update, header, []byte("hello")} {
		if n, err := c.Write(p); err != nil || n != len(p) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	want = proto.AppendRecords(want, append(append([]byte{}, header...), header...))
	want = proto.AppendRecords(want, update)
	want = proto.AppendRecords(want, append(append([]byte{}, header...), "hello"...))
	if !bytes.Equal(w.wrote.Bytes(), want) {
		t.Fatalf("wrote %v, want %v", w.wrote.Bytes(), want)
	}
}
