//go:build linux

package launch

import (
	"strings"
	"testing"

	"brood/internal/base/errs"
)

func TestValidate(t *testing.T) {
	good := func() *Request {
		return &Request{Op: OpCreate, Create: &Create{
			ID: "a", Argv: []string{"/init", ""}, Env: []string{"A=", "B=c=d"},
			Root: Root{Host: &HostRoot{Dir: "/s", Binds: []Bind{{Source: "/", Target: "/all"}}}},
		}}
	}
	for files, ok := range map[int]bool{0: true, 1: false, 2: false, 3: true, 5: true} {
		if err := good().Validate(files); (err == nil) != ok {
			t.Errorf("%d files: %v", files, err)
		}
	}
	for name, spoil := range map[string]func(*Create){
		"empty id":         func(c *Create) { c.ID = "" },
		"long id":          func(c *Create) { c.ID = strings.Repeat("a", 65) },
		"upper case":       func(c *Create) { c.ID = "A" },
		"path in id":       func(c *Create) { c.ID = "a/b" },
		"underscore in id": func(c *Create) { c.ID = "a_sandbox" },
		"no argv":          func(c *Create) { c.Argv = nil },
		"zero byte":        func(c *Create) { c.Argv = []string{"/a\x00"} },
		"huge argv":        func(c *Create) { c.Argv = []string{strings.Repeat("a", maxText+1)} },
		"many args":        func(c *Create) { c.Argv = make([]string, maxStrings+1) },
		"env without =":    func(c *Create) { c.Env = []string{"A"} },
		"env without name": func(c *Create) { c.Env = []string{"=A"} },
		"relative cwd":     func(c *Create) { c.Cwd = "a" },
		"relative debug":   func(c *Create) { c.DebugDir = "a" },
		"long hostname":    func(c *Create) { c.Hostname = strings.Repeat("a", 65) },
		"both roots":       func(c *Create) { c.Root.EROFS = "/x" },
		"no root":          func(c *Create) { c.Root.Host = nil },
		"root folder /":    func(c *Create) { c.Root.Host.Dir = "/" },
		"unclean folder":   func(c *Create) { c.Root.Host.Dir = "/a/../b" },
		"slash at the end": func(c *Create) { c.Root.Host.Dir = "/a/" },
		"target /":         func(c *Create) { c.Root.Host.Binds[0].Target = "/" },
		"target outside":   func(c *Create) { c.Root.Host.Binds[0].Target = "/../x" },
		"relative source":  func(c *Create) { c.Root.Host.Binds[0].Source = "x" },
		"many binds":       func(c *Create) { c.Root.Host.Binds = make([]Bind, maxBinds+1) },
	} {
		r := good()
		spoil(r.Create)
		if err := r.Validate(0); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}

	image := good()
	image.Create.Root = Root{EROFS: "/x.erofs"}
	for files, ok := range map[int]bool{0: false, 1: true, 2: false, 4: true} {
		if err := image.Validate(files); (err == nil) != ok {
			t.Errorf("image and %d files: %v", files, err)
		}
	}
}

func TestValidateOtherRequests(t *testing.T) {
	for name, c := range map[string]struct {
		req   Request
		files int
		want  errs.Code
	}{
		"list":                     {Request{Op: OpList}, 0, errs.OK},
		"list with a file":         {Request{Op: OpList}, 1, errs.InvalidArgument},
		"start":                    {Request{Op: OpStart, ID: "a"}, 0, errs.OK},
		"start nothing":            {Request{Op: OpStart}, 0, errs.InvalidArgument},
		"start with a container":   {Request{Op: OpStart, ID: "a", Create: &Create{}}, 0, errs.InvalidArgument},
		"create nothing":           {Request{Op: OpCreate}, 0, errs.InvalidArgument},
		"checkpoint":               {Request{Op: OpCheckpoint, ID: "a", Dir: "/d"}, 1, errs.OK},
		"checkpoint without file":  {Request{Op: OpCheckpoint, ID: "a", Dir: "/d"}, 0, errs.InvalidArgument},
		"restore from a relative":  {Request{Op: OpRestore, ID: "a", Dir: "d"}, 1, errs.InvalidArgument},
		"restore with two files":   {Request{Op: OpRestore, ID: "a", Dir: "/d"}, 2, errs.InvalidArgument},
		"nothing":                  {Request{}, 0, errs.Unsupported},
		"something from elsewhere": {Request{Op: "fly"}, 0, errs.Unsupported},
	} {
		if err := c.req.Validate(c.files); errs.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
