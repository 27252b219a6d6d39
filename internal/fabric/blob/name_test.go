package blob

import (
	"regexp"
	"strings"
	"testing"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"brood/internal/base/errs"
)

const someHash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

func TestParseName(t *testing.T) {
	d := Digest{Hash: someHash, Size: 5}
	u := "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	for _, c := range []struct {
		in     string
		upload bool
		want   Name
	}{
		{"blobs/" + someHash + "/5", false, Name{Blob: d}},
		{"a/b/blobs/" + someHash + "/5", false, Name{Instance: "a/b", Blob: d}},
		{"blobs/sha256/" + someHash + "/5", false, Name{Blob: d}},
		{"i/compressed-blobs/zstd/" + someHash + "/5", false, Name{Instance: "i", Zstd: true, Blob: d}},
		{"uploads/" + u + "/blobs/" + someHash + "/5", true, Name{Upload: u, Blob: d}},
		{"i/uploads/" + u + "/compressed-blobs/zstd/" + someHash + "/5/and/more", true, Name{Instance: "i", Upload: u, Zstd: true, Blob: d}},
		{"blobs/" + string(Empty.Hash) + "/0", false, Name{Blob: Empty}},
	} {
		got, err := parseName(c.in, c.upload)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.in, got, err)
		}
	}
	for _, bad := range []string{
		"", "/", "blobs", "blobs/" + someHash, "blobs/" + someHash + "/", "blobs/" + someHash + "/-1", "blobs/" + someHash + "/+5",
		"blobs/" + someHash + "/05", "blobs/" + someHash + "/5/x", "blobs/" + strings.ToUpper(someHash) + "/5", "blobs/md5/" + someHash + "/5",
		"/blobs/" + someHash + "/5", "a//blobs/" + someHash + "/5", "../blobs/" + someHash + "/5", "a/../b/blobs/" + someHash + "/5",
		"operations/blobs/" + someHash + "/5", "compressed-blobs/deflate/" + someHash + "/5", "compressed-blobs/" + someHash + "/5",
		"uploads/" + u + "/blobs/" + someHash + "/5", "blobs/" + someHash + "/0", "blobs/" + string(Empty.Hash) + "/1",
		"blobs/" + someHash + "/99999999999999999999", strings.Repeat("a", 300) + "/blobs/" + someHash + "/5", "a\nb/blobs/" + someHash + "/5",
	} {
		if n, err := ParseRead(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, n)
		} else if !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"blobs/" + someHash + "/5", "uploads//blobs/" + someHash + "/5", "uploads/blobs/" + someHash + "/5", "uploads/" + u} {
		if n, err := ParseWrite(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("a/b/uploads/u/compressed-blobs/zstd/sha256/"+someHash+"/5/x", true)
	f.Add("blobs/"+someHash+"/5", false)
	f.Fuzz(func(t *testing.T, s string, upload bool) {
		n, err := parseName(s, upload)
		if err != nil {
			return
		}
		again, err := parseName(n.String(), upload)
		if err != nil || again != n {
			t.Fatalf("%q gave %+v, and that %+v, %v", s, n, again, err)
		}
	})
}

func FuzzFromProto(f *testing.F) {
	f.Add(someHash, int64(5))
	f.Fuzz(func(t *testing.T, hash string, size int64) {
		if d, err := FromProto(&rexec.Digest{Hash: hash, SizeBytes: size}); err == nil && (string(d.Hash) != hash || len(hash) != 64 || size < 0) {
			t.Fatalf("%q %d gave %v", hash, size, d)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	e, err := NewPacker()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e.EncodeAll([]byte(strings.Repeat("hello ", 1000)), nil), int64(6000))
	f.Add([]byte("no zstd"), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		size &= 0xffff
		if out, err := Unpack(b, size); err == nil && int64(len(out)) > size+1 {
			t.Fatalf("%d bytes where %d were asked for", len(out), size)
		}
	})
}

func TestUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		u := uuid()
		if !form.MatchString(u) || seen[u] {
			t.Fatalf("%q", u)
		}
		seen[u] = true
	}
}

func TestEveryCodeTravels(t *testing.T) {
	for _, c := range errs.Codes() {
		s := Status(errs.New(c, "why"))
		if s.Code() == codes.OK || s.Code() == codes.Unknown || s.Message() != "why" {
			t.Errorf("%v travels as %v", c, s)
		}
		back := errs.CodeOf(fromStatus(s))
		if back != c && c != errs.InsufficientDisk {
			t.Errorf("%v came back as %v", c, back)
		}
	}
	for c := codes.OK + 1; c <= codes.Unauthenticated; c++ {
		if _, ok := ourCodes[c]; !ok {
			t.Errorf("%v means nothing", c)
		}
	}
}

// What a server says is shown, and may be of any length.
func TestMessagesOfServersAreBounded(t *testing.T) {
	err := fromStatus(status.New(codes.Internal, strings.Repeat("x", 1<<20)))
	if n := len(err.Error()); n > 2000 {
		t.Errorf("%d bytes", n)
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"grpc://h:1": "h:1", "grpcs://h": "h:443", "grpcs://h:8/": "h:8", "grpc://[::1]:9": "[::1]:9",
	} {
		if host, _, err := parseAddress(in); err != nil || host != want {
			t.Errorf("%s: %s, %v", in, host, err)
		}
	}
	for _, bad := range []string{"", "h:1", "http://h:1", "grpc://h", "grpc://u:p@h:1", "grpc://h:1/instance", "grpc://h:1?x=y", "grpc://"} {
		if _, _, err := parseAddress(bad); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	secret := map[string]string{"authorization": "Bearer x"}
	for address, ok := range map[string]bool{"grpc://192.0.2.1:80": false, "grpc://localhost:80": true, "grpc://127.0.0.1:80": true, "grpcs://192.0.2.1:80": true} {
		c, err := Dial(ClientConfig{Address: address, Headers: secret})
		if (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

func TestGroup(t *testing.T) {
	list := make([]Digest, 0, 5)
	for i, n := range []int64{100, 400, 400, 1000, 1} {
		d := Of([]byte{byte(i)})
		d.Size = n
		list = append(list, d)
	}
	small, large := group(list, 800, 900)
	var sizes [][]int64
	for _, b := range small {
		var s []int64
		for _, d := range b {
			s = append(s, d.Size)
		}
		sizes = append(sizes, s)
	}
	if len(large) != 1 || large[0].Size != 1000 || len(sizes) != 2 || len(sizes[0]) != 2 || len(sizes[1]) != 2 {
		t.Errorf("%v, alone %v", sizes, large)
	}
}
