// Package config reads brood's settings: a file, overridden by the
// environment, overridden by flags.
//
// The file is $BROOD_HOME/config.yaml; a key that is not known there is an
// error with its line, since a setting that silently does nothing is worse
// than none. The environment names are BROOD_ and the key in capitals. Flags
// are the command's own and are applied by it last. Values are read once and
// not changed afterwards.
package config
