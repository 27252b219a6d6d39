package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"brood/internal/run/workspace"
)

func TestSchemaInDocs(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/brood.schema.json")
	if err != nil || !bytes.Equal(raw, workspace.Schema) {
		t.Errorf("docs/brood.schema.json is not the schema of this package (%v): copy it there", err)
	}
}

// TestSchemaAgreesWithLoader: what the loader reads the schema takes, and the
// other way round.
func TestSchemaAgreesWithLoader(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(workspace.Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("brood", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("brood")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"good", "bad"} {
		files, err := filepath.Glob("testdata/brood/" + kind + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("no examples: %v", err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			loaded := workspace.CheckBrood("brood.yaml", raw)
			if (loaded == nil) != (kind == "good") {
				t.Errorf("%s: the loader says %v", file, loaded)
			}
			if loaded != nil && !strings.HasPrefix(loaded.Error(), "brood.yaml:") {
				t.Errorf("%s: no line: %v", file, loaded)
			}
			var value any
			if err := yaml.Unmarshal(raw, &value); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(plain(value)); (err == nil) != (kind == "good") {
				t.Errorf("%s: the schema says %v", file, err)
			}
		}
	}
}

// plain makes of YAML's values those that JSON has.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
		return v
	case uint64:
		return float64(v)
	case int64:
		return float64(v)
	case int:
		return float64(v)
	}
	return v
}

// TestDocsExample: what the docs show is read.
func TestDocsExample(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/brood-yaml.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/brood-yaml.md shows no yaml")
	}
	dir := tree(t, "-- services/api/go.mod --\n-- packages/lib/package.json --\n{\"name\":\"@acme/lib\",\"scripts\":{\"build\":\"tsc\",\"test\":\"x\"}}\n")
	if err := os.WriteFile(filepath.Join(dir, "brood.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := workspace.Open(dir); err != nil {
		t.Error(err)
	}
}
