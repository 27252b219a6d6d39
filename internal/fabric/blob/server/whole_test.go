package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/server"
)

func dial(t *testing.T, c blob.ClientConfig) *blob.Client {
	t.Helper()
	client, err := blob.Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// upload stores blobs and returns their digests.
func upload(t *testing.T, c *blob.Client, list ...[]byte) []blob.Digest {
	t.Helper()
	var digests []blob.Digest
	by := map[blob.Digest][]byte{}
	for _, b := range list {
		d := blob.Of(b)
		digests, by[d] = append(digests, d), b
	}
	err := c.Upload(t.Context(), digests, func(_ context.Context, d blob.Digest, w io.Writer) error {
		_, err := w.Write(by[d])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return digests
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestResultsAreWholeOrMisses: a result is a miss as long as anything that it
// names, however deep, is not there.
func TestResultsAreWholeOrMisses(t *testing.T) {
	c := dial(t, blob.ClientConfig{Address: "grpc://" + start(t, server.Config{})})
	for _, inParts := range []bool{false, true} {
		file, log := fmt.Appendf(nil, "a file, %v", inParts), fmt.Appendf(nil, "said, %v", inParts)
		child := &rexec.Directory{Files: []*rexec.FileNode{{Name: "f", Digest: blob.Of(file).Proto()}}}
		root := &rexec.Directory{Directories: []*rexec.DirectoryNode{{Name: "d", Digest: blob.Of(marshal(t, child)).Proto()}}}
		tree := marshal(t, &rexec.Tree{Root: root, Children: []*rexec.Directory{child}})
		dir := &rexec.OutputDirectory{Path: "dist", TreeDigest: blob.Of(tree).Proto()}
		parts := [][]byte{log, tree, file}
		if inParts {
			dir = &rexec.OutputDirectory{Path: "dist", RootDirectoryDigest: blob.Of(marshal(t, root)).Proto()}
			parts = [][]byte{log, marshal(t, root), marshal(t, child), file}
		}
		action := blob.Of(parts[1])
		result := &rexec.ActionResult{OutputDirectories: []*rexec.OutputDirectory{dir}, StdoutDigest: blob.Of(log).Proto()}
		if err := c.SetResult(t.Context(), action, result); err != nil {
			t.Fatal(err)
		}
		for _, b := range parts {
			if _, err := c.Result(t.Context(), action); !errs.Is(err, errs.NotFound) {
				t.Errorf("without %q: %v", b, err)
			}
			upload(t, c, b)
		}
		if _, err := c.Result(t.Context(), action); err != nil {
			t.Errorf("in parts %v: %v", inParts, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	c := dial(t, blob.ClientConfig{Address: "grpc://" + start(t, server.Config{ReadOnly: true})})
	err := c.Upload(t.Context(), []blob.Digest{blob.Of([]byte("x"))}, func(_ context.Context, _ blob.Digest, w io.Writer) error {
		_, err := w.Write([]byte("x"))
		return err
	})
	if !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("%v", err)
	}
	if err := c.SetResult(t.Context(), blob.Empty, &rexec.ActionResult{}); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("%v", err)
	}
}

// certificate writes a certificate of its own for 127.0.0.1.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	address := start(t, server.Config{Cert: cert, Key: key, Token: "secret"})
	headers := map[string]string{"authorization": "Bearer secret"}
	good := dial(t, blob.ClientConfig{Address: "grpcs://" + address, CA: cert, Headers: headers})
	want := bytes.Repeat([]byte("over tls "), 300_000)
	d := upload(t, good, want)[0]
	if b, err := good.Fetch(t.Context(), d); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for name, c := range map[string]blob.ClientConfig{
		"unknown certificate": {Address: "grpcs://" + address, Headers: headers},
		"no TLS":              {Address: "grpc://" + address, Headers: headers},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := dial(t, c).Limits(ctx); err == nil {
			t.Errorf("%s was taken", name)
		}
		cancel()
	}
}

// killVar makes this test's program serve the folder that it names.
const killVar = "SERVE_AND_BE_KILLED"

func serveForKill(dir string) {
	err := server.Serve(context.Background(), server.Config{Dir: dir, Listen: "127.0.0.1:0", Ready: func(a net.Addr) {
		if err := os.WriteFile(filepath.Join(dir, "address"), []byte(a.String()), 0o600); err != nil {
			panic(err)
		}
	}})
	panic(err)
}

// TestKilledAtAnyMoment: whatever was being written when the server was
// killed, the next one has whole blobs only.
func TestKilledAtAnyMoment(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for round := range 4 {
		os.Remove(filepath.Join(dir, "address"))
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), killVar+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address := ""
		tick := time.NewTicker(5 * time.Millisecond)
		for deadline := time.Now().Add(time.Minute); address == "" && time.Now().Before(deadline); <-tick.C {
			b, _ := os.ReadFile(filepath.Join(dir, "address"))
			address = string(b)
		}
		tick.Stop()
		c := dial(t, blob.ClientConfig{Address: "grpc://" + address})
		var list []blob.Digest
		by := map[blob.Digest][]byte{}
		for i := range 60 {
			b := bytes.Repeat([]byte{byte(i), byte(round)}, 1000+i*i*200)
			d := blob.Of(b)
			list, by[d] = append(list, d), b
		}
		ctx, cancel := context.WithCancel(t.Context())
		_ = c.Upload(ctx, list, func(_ context.Context, d blob.Digest, w io.Writer) error {
			for b := by[d]; len(b) > 0; b = b[min(len(b), 100_000):] {
				if _, err := w.Write(b[:min(len(b), 100_000)]); err != nil {
					return err
				}
			}
			if d.Size > 1<<20 && round%2 == 0 { // in the middle of a stream
				cancel()
				_ = cmd.Process.Kill()
			}
			return nil
		})
		cancel()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	address := start(t, server.Config{Dir: dir})
	found := 0
	err = filepath.WalkDir(filepath.Join(dir, "cas"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		if string(blob.Of(b).Hash) != e.Name() {
			t.Errorf("%s is %s", e.Name(), blob.Of(b))
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Fatalf("%d blobs, %v", found, err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 {
		t.Errorf("%d temporary files are left", len(left))
	}
	c := dial(t, blob.ClientConfig{Address: "grpc://" + address})
	upload(t, c, []byte("and it works"), []byte(strings.Repeat("on ", 1_000_000)))
}
