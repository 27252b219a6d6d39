package runs

import (
	"bytes"
	"os"
	"os/exec"

	"brood/internal/base/errs"
	"brood/internal/base/lazy"
	"brood/internal/run/cache"
	"brood/internal/run/workspace"
)

// remoteLookups is how many keys are asked for at once where each answer comes
// over a network.
const remoteLookups = 32

// Shared says which shared cache a run uses, and what it says of itself there.
type Shared struct {
	Address  string // grpc://, grpcs://, or http(s):// for a server of turbo's
	Token    string
	Instance string
	Headers  map[string]string
	Team     string
	TeamID   string
}

// Connect opens a shared cache; end ends what it has open.
type Connect func(Shared) (c cache.Remote, end func() error, err error)

// remote is the shared cache of a run; the zero value is none.
type remote struct {
	cache cache.Remote
	end   func() error
}

func (r remote) close() {
	if r.end != nil {
		_ = r.end() // nothing is on its way any more
	}
}

// said is the shared cache that flag and environment name.
func (f *runFlags) said() string {
	for _, address := range []string{f.remote, os.Getenv("BROOD_CACHE")} {
		if address != "" {
			return address
		}
	}
	return ""
}

// turbos is the shared cache that turbo's variables name, "" for none.
func turbos() string {
	if os.Getenv("TURBO_TOKEN") == "" {
		return ""
	}
	return os.Getenv("TURBO_API")
}

// shared finds the shared cache: the flag, else $BROOD_CACHE, else what the
// workspace says, else turbo's variables. Without one the address is empty.
func (s *session) shared(f runFlags) (Shared, error) {
	said := s.cacheSettings()
	address := f.said()
	if address == "" {
		address = said.Remote
	}
	c := Shared{Address: address, Instance: said.Instance, Team: os.Getenv("TURBO_TEAM"), TeamID: os.Getenv("TURBO_TEAMID")}
	switch {
	case address == "" && turbos() != "":
		c.Address, c.Token = turbos(), os.Getenv("TURBO_TOKEN")
	case address != "" && !schemes().MatchString(address):
		return Shared{}, errs.New(errs.InvalidArgument, "the shared cache %q is not an address: write grpc://HOST:PORT or grpcs://HOST:PORT, or http(s):// for a server of turbo's", address)
	}
	return c, nil
}

// schemes are those of shared caches.
var schemes = lazy.Regexp(`^(grpc|http)s?://`)

func (s *session) cacheSettings() workspace.CacheSettings {
	if b := s.ws.Settings.Brood; b != nil {
		return b.Cache
	}
	return workspace.CacheSettings{}
}

// remote opens the shared cache, where there is one.
func (a *app) remote(s *session, c Shared) (r remote, err error) {
	if c.Address == "" || a.connect == nil { // open says why there is no connect
		return remote{}, nil
	}
	if c.Token == "" {
		if c.Token, c.Headers, err = secretsOf(s.cacheSettings()); err != nil {
			return remote{}, err
		}
	}
	r.cache, r.end, err = a.connect(c)
	return r, err
}

// secretsOf reads what proves to the shared cache who we are.
func secretsOf(said workspace.CacheSettings) (token string, headers map[string]string, err error) {
	if token, err = secretOf("cache.token", said.Token); err != nil {
		return "", nil, err
	}
	if own := os.Getenv("BROOD_CACHE_TOKEN"); own != "" {
		token = own
	}
	headers = map[string]string{}
	for name, secret := range said.Headers {
		value, err := secretOf("cache.headers."+name, secret)
		if err != nil {
			return "", nil, err
		}
		if value != "" { // one that is not set is left out
			headers[name] = value
		}
	}
	return token, headers, nil
}

// secretOf reads a value from where brood.yaml says.
func secretOf(what string, s workspace.Secret) (string, error) {
	switch {
	case s.Env != "":
		return os.Getenv(s.Env), nil
	case s.Command != "":
		cmd := exec.Command("sh", "-c", s.Command)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return "", errs.New(errs.FailedPrecondition, "the command of %s: %w", what, err)
		}
		return string(bytes.TrimSpace(out)), nil
	case s.GithubOIDC != "":
		return "", errs.New(errs.Unsupported, "%s: a shared cache takes a token from env or command, not github-oidc", what)
	}
	return s.Value, nil
}
