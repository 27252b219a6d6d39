package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
	"brood/internal/run/cache"
	"brood/internal/run/cache/artifact"
	"brood/internal/run/cache/reapi"
	"brood/internal/run/workspace"
)

// remoteLookups is how many keys are asked for at once where each answer comes
// over a network.
const remoteLookups = 32

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

// remote finds the shared cache: the flag, else $BROOD_CACHE, else what the
// workspace says, else turbo's variables.
func (s *session) remote(f runFlags) (remote, error) {
	var said workspace.CacheSettings
	if b := s.ws.Settings.Brood; b != nil {
		said = b.Cache
	}
	address := f.remote
	if address == "" {
		address = os.Getenv("BROOD_CACHE")
	}
	if address == "" {
		address = said.Remote
	}
	token, headers, err := secretsOf(said)
	if err != nil {
		return remote{}, err
	}
	switch {
	case strings.HasPrefix(address, "grpc://") || strings.HasPrefix(address, "grpcs://"):
		return reapiCache(blob.ClientConfig{Address: address, Instance: said.Instance, Headers: headers}, token)
	case strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://"):
		return artifacts(artifact.Config{API: address, Token: token, Team: os.Getenv("TURBO_TEAM"), TeamID: os.Getenv("TURBO_TEAMID")})
	case address != "":
		return remote{}, errs.New(errs.InvalidArgument, "the shared cache %q is not an address: write grpc://HOST:PORT or grpcs://HOST:PORT, or http(s):// for a server of turbo's", address)
	case os.Getenv("TURBO_API") != "" && os.Getenv("TURBO_TOKEN") != "":
		return artifacts(artifact.Config{API: os.Getenv("TURBO_API"), Token: os.Getenv("TURBO_TOKEN"), Team: os.Getenv("TURBO_TEAM"), TeamID: os.Getenv("TURBO_TEAMID")})
	}
	return remote{}, nil
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

func reapiCache(c blob.ClientConfig, token string) (remote, error) {
	if token != "" {
		c.Headers["authorization"] = "Bearer " + token
	}
	client, err := blob.Dial(c)
	if err != nil {
		return remote{}, err
	}
	return remote{cache: reapi.New(client), end: client.Close}, nil
}

func artifacts(c artifact.Config) (remote, error) {
	c.Agent = "brood/" + version
	server, err := artifact.New(c)
	if err != nil {
		return remote{}, err
	}
	return remote{cache: server, end: func() error { server.Close(); return nil }}, nil
}
