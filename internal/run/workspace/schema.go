package workspace

import _ "embed"

// Schema is the JSON schema of brood.yaml, for editors.
//
//go:embed brood.schema.json
var Schema []byte

// CheckBrood checks the text of a root's brood.yaml by itself, without the
// projects that it speaks of. path is its name in messages.
func CheckBrood(path string, raw []byte) error {
	_, err := parseBrood(path, raw, true)
	return err
}
