package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"

	"brood/internal/base/errs"
	"brood/internal/run/workspace/source"
)

const manifestName = "package.json"

// manifest is what is read of a package.json.
type manifest struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	PackageManager       string            `json:"packageManager"`
	Scripts              map[string]string `json:"scripts"`
	Dependencies         map[string]string `json:"dependencies"`
	DevDependencies      map[string]string `json:"devDependencies"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
	Workspaces           workspacesField   `json:"workspaces"`
	Engines              json.RawMessage   `json:"engines"`
	DevEngines           struct {
		PackageManager oneOrFirst `json:"packageManager"`
	} `json:"devEngines"`
}

// engines is that field as one line, "" without it.
func (m *manifest) engines() string {
	var line bytes.Buffer
	if json.Compact(&line, m.Engines) != nil {
		return ""
	}
	return line.String()
}

// oneOrFirst is an object, or a list of them whose first counts.
type oneOrFirst struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (o *oneOrFirst) UnmarshalJSON(raw []byte) error {
	type plain oneOrFirst
	var many []plain
	if json.Unmarshal(raw, &many) == nil {
		if len(many) > 0 {
			*o = oneOrFirst(many[0])
		}
		return nil
	}
	return json.Unmarshal(raw, (*plain)(o))
}

// workspacesField is a list of globs, or an object that holds one.
type workspacesField struct {
	Globs []string
	Set   bool
}

func (w *workspacesField) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	w.Set = true
	if json.Unmarshal(raw, &w.Globs) == nil {
		return nil
	}
	var nested struct {
		Packages []string `json:"packages"`
	}
	err := json.Unmarshal(raw, &nested)
	w.Globs = nested.Packages
	return err
}

// readManifest reads the package.json of a folder; shown is its name in
// messages. A folder without one is fs.ErrNotExist.
func readManifest(dir, shown string) (*manifest, error) {
	raw, err := source.Read(filepath.Join(dir, manifestName), shown)
	if err != nil {
		return nil, err
	}
	return parseManifest(shown, raw)
}

func parseManifest(shown string, raw []byte) (*manifest, error) {
	if len(raw) >= 3 && string(raw[:3]) == "\xef\xbb\xbf" {
		raw = raw[3:]
	}
	m := &manifest{}
	err := json.Unmarshal(raw, m)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return m, nil
	case errors.As(err, &syntax):
		return nil, errs.New(errs.InvalidArgument, "%s:%d: is not JSON: %w", shown, source.LineOf(raw, int(syntax.Offset)), err)
	case errors.As(err, &kind):
		return nil, errs.New(errs.InvalidArgument, "%s:%d: %s is %s, which is not what package.json has there",
			shown, source.LineOf(raw, int(kind.Offset)), kind.Field, article(kind.Value))
	}
	return nil, errs.New(errs.InvalidArgument, "%s: %w", shown, err)
}

func article(kind string) string {
	switch kind {
	case "array", "object":
		return "an " + kind
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// dependencies returns all that the package needs by itself. Peers are its
// users' business.
func (m *manifest) dependencies() map[string]string {
	all := make(map[string]string, len(m.Dependencies)+len(m.DevDependencies)+len(m.OptionalDependencies))
	maps.Copy(all, m.DevDependencies)
	maps.Copy(all, m.OptionalDependencies)
	maps.Copy(all, m.Dependencies)
	return all
}
