package proto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"brood/internal/base/errs"
)

// naive is what a Matcher must agree with.
func naive(stream, pattern []byte) []int {
	var ends []int
	for i := range stream {
		if bytes.HasPrefix(stream[i:], pattern) {
			ends = append(ends, i+len(pattern))
		}
	}
	return ends
}

func matched(stream, pattern []byte, cut func() int) []int {
	m := NewMatcher(pattern)
	var ends []int
	for at := 0; at < len(stream); {
		piece := stream[at:min(len(stream), at+cut())]
		end, found := m.Feed(piece)
		at += end
		if found {
			ends = append(ends, at)
		} else if end != len(piece) {
			return []int{-1}
		}
	}
	return ends
}

func TestMatcherFindsEveryPlaceHoweverCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		// Few letters, so that patterns overlap themselves and each other.
		pattern := make([]byte, 1+r.IntN(8))
		stream := make([]byte, r.IntN(200))
		for i := range pattern {
			pattern[i] = byte(r.IntN(2))
		}
		for i := range stream {
			stream[i] = byte(r.IntN(2))
		}
		got := matched(stream, pattern, func() int { return 1 + r.IntN(7) })
		if want := naive(stream, pattern); !equal(got, want) {
			t.Fatalf("pattern %v in %v: %v, want %v", pattern, stream, got, want)
		}
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func FuzzMatcher(f *testing.F) {
	f.Add([]byte("aabaabaaab"), []byte("aabaaab"), uint8(3))
	f.Fuzz(func(t *testing.T, stream, pattern []byte, cut uint8) {
		if len(pattern) == 0 || len(pattern) > 64 {
			return
		}
		step := 1 + int(cut)
		if got, want := matched(stream, pattern, func() int { return step }), naive(stream, pattern); !equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// unframed feeds pieces to an Unframer and returns all payloads.
func unframed(u *Unframer, stream []byte, step int) []byte {
	var out []byte
	for len(stream) > 0 {
		piece := stream[:min(len(stream), step)]
		stream = stream[len(piece):]
		for len(piece) > 0 {
			n, payload := u.Feed(piece)
			if n <= 0 || n > len(piece) {
				panic("no progress")
			}
			out = append(out, payload...)
			piece = piece[n:]
		}
	}
	return out
}

func TestRecordsComeBackWholeOrNotAtAll(t *testing.T) {
	data := make([]byte, 3*MaxRecord+17)
	for i := range data {
		data[i] = byte(i * 7)
	}
	wire := AppendRecords(nil, data)
	for _, step := range []int{1, 7, 8, 9, 4096, len(wire)} {
		var u Unframer
		if got := unframed(&u, wire, step); !bytes.Equal(got, data) || u.Deaf() {
			t.Fatalf("step %d: %d bytes, deaf %v", step, len(got), u.Deaf())
		}
	}
	one := AppendRecords(nil, []byte("hello"))
	for i := range one {
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(one)
			bad[i] ^= flip
			var u Unframer
			if got := unframed(&u, append(bad, one...), 5); len(got) > 0 && !bytes.Equal(got, []byte("hello")) {
				t.Fatalf("byte %d changed: took %q", i, got)
			}
		}
	}
	// A torn record swallows nothing of what a new session brings.
	var u Unframer
	unframed(&u, one[:9], 9)
	u.Reset()
	if got := unframed(&u, one, 3); string(got) != "hello" {
		t.Fatalf("after a reset: %q", got)
	}
}

func FuzzUnframer(f *testing.F) {
	f.Add(AppendRecords(nil, []byte("abc")), uint16(2))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint16) {
		var whole, pieces Unframer
		a := unframed(&whole, stream, len(stream)+1)
		b := unframed(&pieces, stream, 1+int(step))
		if !bytes.Equal(a, b) || len(a) > len(stream) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	sent := Request{Op: OpExec, Args: []byte(`{"id":"a"}`)}
	if err := WriteMessage(&b, sent); err != nil {
		t.Fatal(err)
	}
	wire := bytes.Clone(b.Bytes())
	var got Request
	if err := ReadMessage(iotest.OneByteReader(&b), &got); err != nil || got.Op != sent.Op || string(got.Args) != string(sent.Args) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := 1; n < len(wire); n++ {
		if err := ReadMessage(bytes.NewReader(wire[:n]), &got); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := ReadMessage(bytes.NewReader(nil), &got); !errors.Is(err, io.EOF) {
		t.Fatalf("nothing: %v", err)
	}
	huge := binary.BigEndian.AppendUint32(nil, MaxHeader+1)
	if err := ReadMessage(bytes.NewReader(huge), &got); !errs.Is(err, errs.InvalidArgument) {
		t.Fatalf("too large: %v", err)
	}
	if err := WriteMessage(io.Discard, strings.Repeat("x", MaxHeader)); !errs.Is(err, errs.InvalidArgument) {
		t.Fatalf("write too large: %v", err)
	}
}

func FuzzReadMessage(f *testing.F) {
	var b bytes.Buffer
	_ = WriteMessage(&b, Request{Op: OpStdin, Args: []byte(`{"id":"a","size":3}`)})
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var r Request
		if err := ReadMessage(bytes.NewReader(wire), &r); err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteMessage(&again, r); err != nil {
			t.Fatal(err)
		}
		var q Request
		if err := ReadMessage(&again, &q); err != nil || q.Op != r.Op {
			t.Fatalf("%+v became %+v: %v", r, q, err)
		}
	})
}

func TestFailuresKeepTheirCode(t *testing.T) {
	for _, code := range errs.Codes() {
		err := errs.With(errs.New(code, "told %s", "so"), "k", "v")
		back := NewFailure(err).Err()
		if errs.CodeOf(back) != code || back.Error() != "told so" || errs.MetaOf(back)["k"] != "v" {
			t.Errorf("%v became %v (%v, %v)", code, back, errs.CodeOf(back), errs.MetaOf(back))
		}
	}
	if c := errs.CodeOf((&Failure{Code: "of tomorrow"}).Err()); c != errs.Internal {
		t.Errorf("an unknown code is %v", c)
	}
}

func TestFrames(t *testing.T) {
	for _, f := range []Frame{
		{Kind: KindStdout, Offset: 1 << 40, Data: []byte("x")},
		{Kind: KindStderr, Data: make([]byte, MaxFrame)},
		{Kind: KindDisplaced},
	} {
		wire := AppendFrame(nil, f)
		got, err := ReadFrame(iotest.HalfReader(bytes.NewReader(wire)))
		if err != nil || got.Kind != f.Kind || got.Offset != f.Offset || !bytes.Equal(got.Data, f.Data) {
			t.Fatalf("%+v became %+v: %v", f.Kind, got.Kind, err)
		}
		if _, err := ReadFrame(bytes.NewReader(wire[:len(wire)-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("torn: %v", err)
		}
	}
	for _, bad := range []Frame{{Kind: 0}, {Kind: 9}, {Kind: KindStdout, Data: make([]byte, MaxFrame+1)}} {
		if _, err := ReadFrame(bytes.NewReader(AppendFrame(nil, bad))); !errs.Is(err, errs.DataLoss) {
			t.Fatalf("%v with %d bytes: %v", bad.Kind, len(bad.Data), err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(AppendFrame(nil, Frame{Kind: KindStdout, Offset: 3, Data: []byte("abc")}))
	f.Fuzz(func(t *testing.T, wire []byte) {
		got, err := ReadFrame(bytes.NewReader(wire))
		if err == nil && !bytes.HasPrefix(wire, AppendFrame(nil, got)) {
			t.Fatalf("%+v of %v", got, wire)
		}
	})
}

func TestChunksEndWholeOrSayWhy(t *testing.T) {
	data := make([]byte, 2*MaxChunk+5)
	for i := range data {
		data[i] = byte(i)
	}
	var wire bytes.Buffer
	w := NewChunkWriter(&wire)
	for _, n := range []int{0, 1, MaxChunk, len(data) - MaxChunk - 1} {
		if _, err := w.Write(data[:n]); err != nil {
			t.Fatal(err)
		}
		data = append(data[n:], data[:n]...)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wire.WriteString("behind")
	got, err := io.ReadAll(NewChunkReader(&wire))
	if err != nil || len(got) != len(data) || !bytes.Equal(got, data) || wire.String() != "behind" {
		t.Fatalf("%d bytes, %v, left %q", len(got), err, wire.String())
	}

	wire.Reset()
	w = NewChunkWriter(&wire)
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(errs.New(errs.NotFound, "it went away")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(NewChunkReader(bytes.NewReader(wire.Bytes()))); !errs.Is(err, errs.NotFound) {
		t.Fatalf("aborted: %v", err)
	}
	if _, err := io.ReadAll(NewChunkReader(bytes.NewReader([]byte{0, 0, 0, 3, 'a'}))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("torn: %v", err)
	}
	if _, err := io.ReadAll(NewChunkReader(bytes.NewReader([]byte{0, 1, 0, 1, 'a'}))); !errs.Is(err, errs.DataLoss) {
		t.Fatalf("too large: %v", err)
	}
}

func FuzzChunkReader(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'a', 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0x80, 0, 0x10, 0, 0, 0, 0, 1, 'a', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		n, _ := io.Copy(io.Discard, NewChunkReader(bytes.NewReader(wire)))
		if n > int64(len(wire)/4+1)*maxZeros {
			t.Fatalf("%d bytes of %d", n, len(wire))
		}
	})
}

// Whatever is written in whatever pieces is read, and zeros are not sent, but
// to a reader that does not know of it.
func TestChunksLeaveOutZeros(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		data := make([]byte, r.IntN(4<<20))
		for range r.IntN(6) {
			if at := r.IntN(len(data) + 1); at < len(data) {
				part := data[at:min(len(data), at+r.IntN(100_000))]
				for i := range part {
					part[i] = byte(1 + r.IntN(255))
				}
			}
		}
		for _, zeros := range []bool{true, false} {
			var wire bytes.Buffer
			w := NewChunkWriter(&wire)
			w.Zeros = zeros
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(70_000))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			sent := wire.Len()
			got, err := io.ReadAll(NewChunkReader(&wire))
			if err != nil || !bytes.Equal(got, data) || wire.Len() > 0 {
				t.Fatalf("%d bytes of %d, %v, %d left", len(got), len(data), err, wire.Len())
			}
			if !zeros && sent < len(data) {
				t.Errorf("%d bytes sent for %d", sent, len(data))
			}
		}
	}
	var wire bytes.Buffer
	w := NewChunkWriter(&wire)
	w.Zeros = true
	if _, err := io.CopyN(w, zeroReader{}, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte{1}, 1<<20)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if n := wire.Len(); n > 1<<20+64<<10 {
		t.Errorf("1 GiB of zeros and 1 MiB of data took %d bytes", n)
	}
	if n, err := io.Copy(io.Discard, NewChunkReader(&wire)); n != 1<<30+1<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }
