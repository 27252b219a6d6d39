package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"brood/internal/base/errs"
)

// Settings are all of brood's settings; zero values mean the default that is
// named beside each.
type Settings struct {
	// Listen is the daemon's TCP address: a loopback one (127.0.0.1:0, a free
	// port), or "off".
	Listen string `yaml:"listen"`
	// CORS are the web origins that may call the daemon from a browser (none).
	CORS []string `yaml:"cors"`
	// MinFree is the disk space that no checkpoint may leave less of, as a
	// size such as 5G; 0 is none (the larger of 5 GB and 5 % of the disk).
	MinFree string `yaml:"min_free"`
	// MaxStarting is how many sandboxes may be starting at once on this
	// machine, over all batches (2 for each core).
	MaxStarting int `yaml:"max_starting"`
	// MaxSandboxes is how many sandboxes this machine takes (no limit).
	MaxSandboxes int `yaml:"max_sandboxes"`
	// IdentityTimeout is how many seconds a fork may take to confirm its
	// identity (10).
	IdentityTimeout int `yaml:"identity_timeout"`
	// LogLevel is debug, info, warn or error (info).
	LogLevel string `yaml:"log_level"`
}

// Load reads the file in the home folder, when there is one, and the
// environment. environ is that of os.Environ.
func Load(home string, environ []string) (Settings, error) {
	var s Settings
	path := filepath.Join(home, "config.yaml")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, errs.New(errs.InvalidArgument, "settings: %w", err)
	}
	if err := Parse(b, &s); err != nil {
		return s, errs.New(errs.InvalidArgument, "settings in %s: %w", path, err)
	}
	if err := fromEnvironment(&s, environ); err != nil {
		return s, err
	}
	return s, s.check(path, b, environ)
}

// check refuses numbers that mean nothing. That a zero was said, and is no
// default, only the text knows.
func (s *Settings) check(path string, text []byte, environ []string) error {
	var said map[string]any
	if err := yaml.Unmarshal(text, &said); err != nil {
		return errs.New(errs.InvalidArgument, "settings in %s: %w", path, err)
	}
	for _, n := range []struct {
		key   string
		value int
		least int // of those that can be said
		unit  string
	}{
		{"max_starting", s.MaxStarting, 1, "a number"},
		{"max_sandboxes", s.MaxSandboxes, 0, "a number"}, // 0: no limit
		{"identity_timeout", s.IdentityTimeout, 1, "a number of seconds"},
	} {
		where := path + ": " + n.key
		given := said[n.key] != nil
		if _, ok := lookup(environ, "BROOD_"+strings.ToUpper(n.key)); ok {
			where, given = "BROOD_"+strings.ToUpper(n.key), true
		}
		if given && n.value < n.least {
			return errs.New(errs.InvalidArgument, "%s is %d: write %s from %d, or leave it out for the default", where, n.value, n.unit, n.least)
		}
	}
	return nil
}

// Parse reads the text of a settings file into s.
func Parse(b []byte, s *Settings) error {
	if len(strings.TrimSpace(string(b))) == 0 {
		return nil
	}
	if err := yaml.UnmarshalWithOptions(b, s, yaml.Strict()); err != nil {
		return errs.New(errs.InvalidArgument, "%s", yaml.FormatError(err, false, true))
	}
	return nil
}

// fromEnvironment applies BROOD_<KEY> for every key of Settings.
func fromEnvironment(s *Settings, environ []string) error {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name := "BROOD_" + strings.ToUpper(v.Type().Field(i).Tag.Get("yaml"))
		text, ok := lookup(environ, name)
		if !ok {
			continue
		}
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Int:
			n, err := strconv.Atoi(text)
			if err != nil {
				return errs.New(errs.InvalidArgument, "%s=%q is not a whole number", name, text)
			}
			f.SetInt(int64(n))
		default:
			f.Set(reflect.ValueOf(strings.FieldsFunc(text, func(r rune) bool { return r == ',' })))
		}
	}
	return nil
}

func lookup(environ []string, name string) (string, bool) {
	for _, e := range environ {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v, true
		}
	}
	return "", false
}
