package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// manifest is a package.json as far as scripts see of it.
type manifest struct {
	path    string
	name    string
	version string
	scripts map[string]string
	// fields is everything, numbers as they are written.
	fields map[string]any
}

func readManifest(dir string) (*manifest, error) {
	path := filepath.Join(dir, "package.json")
	b, err := readText(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errs.New(errs.NotFound, "%s does not exist, so there is no script to run", path)
	}
	if errs.CodeOf(err) == errs.InvalidArgument {
		return nil, err
	}
	if err != nil {
		return nil, errs.New(errs.Internal, "reading %s: %w", path, err)
	}
	return parseManifest(path, b)
}

// readText reads a file of the workspace or of a package manager, and nothing
// that is no file: a pipe would be waited for.
func readText(path string) ([]byte, error) {
	return content.ReadFile(path, path, content.MaxText)
}

func parseManifest(path string, b []byte) (*manifest, error) {
	m := &manifest{path: path, scripts: map[string]string{}}
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
	dec.UseNumber()
	if err := dec.Decode(&m.fields); err != nil {
		return nil, errs.New(errs.InvalidArgument, "%s is not valid: %w", path, err)
	}
	m.name, _ = m.fields["name"].(string)
	m.version, _ = m.fields["version"].(string)
	scripts, _ := m.fields["scripts"].(map[string]any)
	for name, line := range scripts {
		if s, ok := line.(string); ok {
			m.scripts[name] = s
		}
	}
	return m, nil
}
