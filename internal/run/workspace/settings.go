package workspace

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"brood/internal/config"
	"brood/internal/run/workspace/source"
)

// RunSettings are what a root's brood.yaml says of the runs themselves.
type RunSettings struct {
	Workers []Size
	// Adapter starts workers; its options are the adapter's own to read.
	Adapter Adapter
	// Relay is a base URL.
	Relay   string
	Token   Secret
	Headers map[string]Secret
	Cache   CacheSettings
	// Unmeasured is what a task without history is taken to need; zero where
	// nothing is said.
	Unmeasured Need
	// Join is how long a worker that was asked for may take; 0 is unsaid.
	Join time.Duration
}

// Size is a kind of worker.
type Size struct {
	Name     string
	Cores    float64
	Memory   int64 // bytes
	Platform string
	Max      int
}

// Need is what a task needs.
type Need struct {
	CPU    float64
	Memory int64
}

// Adapter names an adapter and holds its options, with their lines.
type Adapter struct {
	Kind    string
	Options *source.Node
	File    *source.File
}

// Secret is a value, or where it comes from. At most one field is set.
type Secret struct {
	Value   string
	Env     string
	Command string
	// GithubOIDC is the audience of a token of GitHub's.
	GithubOIDC string
}

// CacheSettings are about the shared cache and the local one.
type CacheSettings struct {
	Remote   string
	Instance string
	Token    Secret
	Headers  map[string]Secret
	// Size is the most that the local cache may hold, in bytes.
	Size int64
	// Wipe removes a task's outputs before it runs.
	Wipe bool
}

// adapters are the kinds of adapter.
var adapters = []string{"local", "command", "github", "forks", "reapi"}

// runKeys are the keys of a root's brood.yaml that fill the settings.
func (s *RunSettings) runKeys(f *source.File) source.Keys {
	return source.Keys{
		"workers":    s.readWorkers(f),
		"adapter":    s.readAdapter(f),
		"relay":      address(f, "relay", &s.Relay, "http", "https"),
		"token":      secret(f, "token", &s.Token, true),
		"headers":    headers(f, "headers", &s.Headers),
		"cache":      s.readCache(f),
		"unmeasured": s.readUnmeasured(f),
		"timeouts": func(n *source.Node) error {
			return f.Each(n, "timeouts", source.Keys{"join": duration(f, "timeouts.join", &s.Join)}, f.Refuse("timeouts"))
		},
	}
}

func (s *RunSettings) readWorkers(f *source.File) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := f.Want(n, "workers", source.List); err != nil {
			return err
		}
		for _, item := range n.Items {
			size := Size{}
			err := f.Each(item, "workers", source.Keys{
				"name":     f.String("workers.name", &size.Name),
				"cores":    amount(f, "workers.cores", &size.Cores),
				"memory":   byteSize(f, "workers.memory", &size.Memory),
				"platform": platform(f, "workers.platform", &size.Platform),
				"max":      count(f, "workers.max", &size.Max),
			}, f.Refuse("workers"))
			if err != nil {
				return err
			}
			if size.Cores == 0 || size.Memory == 0 {
				return f.Wrong(item.Line, "a size of workers says its cores and its memory")
			}
			s.Workers = append(s.Workers, size)
		}
		return nil
	}
}

func (s *RunSettings) readAdapter(f *source.File) func(*source.Node) error {
	return func(n *source.Node) error {
		s.Adapter = Adapter{Options: n, File: f}
		kind := n
		if n.Kind == source.Map {
			if kind = n.Get("kind"); kind == nil {
				return f.Wrong(n.Line, "adapter has no kind: it is one of %s", strings.Join(adapters, ", "))
			}
		}
		return f.OneOf("adapter", &s.Adapter.Kind, adapters...)(kind)
	}
}

func (s *RunSettings) readCache(f *source.File) func(*source.Node) error {
	return func(n *source.Node) error {
		c := &s.Cache
		var wipe *bool
		err := f.Each(n, "cache", source.Keys{
			"remote":   address(f, "cache.remote", &c.Remote, "grpc", "grpcs", "http", "https"),
			"instance": f.String("cache.instance", &c.Instance),
			"token":    secret(f, "cache.token", &c.Token, true),
			"headers":  headers(f, "cache.headers", &c.Headers),
			"size":     byteSize(f, "cache.size", &c.Size),
			"wipe":     f.Bool("cache.wipe", &wipe),
		}, f.Refuse("cache"))
		c.Wipe = wipe != nil && *wipe
		return err
	}
}

func (s *RunSettings) readUnmeasured(f *source.File) func(*source.Node) error {
	return func(n *source.Node) error {
		return f.Each(n, "unmeasured", source.Keys{
			"cpu":    amount(f, "unmeasured.cpu", &s.Unmeasured.CPU),
			"memory": byteSize(f, "unmeasured.memory", &s.Unmeasured.Memory),
		}, f.Refuse("unmeasured"))
	}
}

// address reads a URL of one of the schemes.
func address(f *source.File, what string, to *string, schemes ...string) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := f.Want(n, what, source.String); err != nil {
			return err
		}
		u, err := url.Parse(n.Text)
		switch {
		case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
			return f.Wrong(n.Line, "%s is %q: it takes an address that begins with %s://", what, n.Text, strings.Join(schemes, "://, "))
		case u.RawQuery != "" || u.Fragment != "":
			return f.Wrong(n.Line, "%s is %q: cut what begins with ? or #", what, n.Text)
		case what == "relay" && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1"):
			return f.Wrong(n.Line, "relay is %q: cut the /v1 at its end", n.Text)
		}
		*to = n.Text
		return nil
	}
}

// secret reads {env: NAME}, and, where more is allowed, {command: LINE} and
// {github-oidc: AUDIENCE}. A plain string is a value; a token is never one.
func secret(f *source.File, what string, to *Secret, more bool) func(*source.Node) error {
	return func(n *source.Node) error {
		if n.Kind == source.String && !more {
			to.Value = n.Text
			return nil
		}
		if n.Kind == source.String {
			return f.Wrong(n.Line, "%s: a token has no place in a file: write {env: NAME}", what)
		}
		keys := source.Keys{"env": f.String(what+".env", &to.Env)}
		if more {
			keys["command"] = f.String(what+".command", &to.Command)
			keys["github-oidc"] = f.String(what+".github-oidc", &to.GithubOIDC)
		}
		if err := f.Each(n, what, keys, f.Refuse(what)); err != nil {
			return err
		}
		if len(n.Fields) != 1 {
			return f.Wrong(n.Line, "%s takes one way to get it, these are %d", what, len(n.Fields))
		}
		return nil
	}
}

func headers(f *source.File, what string, to *map[string]Secret) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := f.Want(n, what, source.Map); err != nil {
			return err
		}
		*to = map[string]Secret{}
		for _, field := range n.Fields {
			var value Secret
			if err := secret(f, what+"."+field.Key, &value, false)(field.Value); err != nil {
				return err
			}
			(*to)[field.Key] = value
		}
		return nil
	}
}

func duration(f *source.File, what string, to *time.Duration) func(*source.Node) error {
	return func(n *source.Node) error {
		d, err := time.ParseDuration(n.Text)
		if n.Kind != source.String || err != nil || d <= 0 {
			return f.Wrong(n.Line, "%s takes a time such as 90s, 10m or 1h30m", what)
		}
		*to = d
		return nil
	}
}

func byteSize(f *source.File, what string, to *int64) func(*source.Node) error {
	return func(n *source.Node) error {
		if n.Kind != source.String && n.Kind != source.Number {
			return f.Wrong(n.Line, "%s takes a size such as 512M or 4GB, this is %s", what, n.Kind)
		}
		size, err := config.ParseBytes(what, n.Text)
		if err != nil {
			return f.Wrong(n.Line, "%s", err)
		}
		*to = int64(size)
		return nil
	}
}

// amount reads a positive number.
func amount(f *source.File, what string, to *float64) func(*source.Node) error {
	return func(n *source.Node) error {
		if n.Kind != source.Number || n.Number <= 0 || n.Number > 10_000 {
			return f.Wrong(n.Line, "%s takes a number above 0, such as 2 or 0.5", what)
		}
		*to = n.Number
		return nil
	}
}

// count reads a whole number from 0 on.
func count(f *source.File, what string, to *int) func(*source.Node) error {
	return func(n *source.Node) error {
		if n.Kind != source.Number || n.Number < 0 || n.Number > 1_000_000 || n.Number != float64(int(n.Number)) {
			return f.Wrong(n.Line, "%s takes a whole number from 0 on", what)
		}
		*to = int(n.Number)
		return nil
	}
}

func platform(f *source.File, what string, to *string) func(*source.Node) error {
	return func(n *source.Node) error {
		system, arch, ok := strings.Cut(n.Text, "/")
		if n.Kind != source.String || !ok || system == "" || arch == "" || strings.Contains(arch, "/") {
			return f.Wrong(n.Line, "%s takes a system and its processor, such as linux/amd64", what)
		}
		*to = n.Text
		return nil
	}
}
