package drivertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"time"
)

// onlyFile returns the content of the one file in a tar stream.
func onlyFile(r io.Reader) (string, error) {
	tr := tar.NewReader(r)
	if _, err := tr.Next(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(tr)
	return string(b), err
}

// oneFile is a tar stream with one file.
func oneFile(name, content string) (io.Reader, error) {
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1, 0)})
	if err == nil {
		_, err = io.WriteString(tw, content)
	}
	return &out, errors.Join(err, tw.Close())
}
