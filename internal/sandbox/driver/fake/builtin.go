package fake

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// builtin are the programs that every World knows.
func builtin() map[string]func() Program {
	all := map[string]func() Program{
		"cat":   func() Program { return &cat{} },
		"sleep": func() Program { return &sleep{} },
		"sh":    func() Program { return &shell{} },
		"bash":  func() Program { return &shell{} },
		"echod": func() Program { return &server{} },
		"httpd": func() Program { return &server{} },

		"counter": func() Program { return &Counter{} },
	}
	for name, f := range instant {
		all[name] = func() Program { return &oneShot{run: f} }
	}
	return all
}

// oneShot is a program that ends at once; it never is in a capture.
type oneShot struct{ run func(*Process) int }

// Handle runs and ends.
func (o *oneShot) Handle(p *Process, e Event) {
	if e.Kind == Started {
		p.Exit(o.run(p))
	}
}

// instant are the programs that end at once, with their exit code.
var instant = map[string]func(*Process) int{
	"true":  func(*Process) int { return 0 },
	"false": func(*Process) int { return 1 },
	"echo": func(p *Process) int {
		p.Print([]byte(strings.Join(p.Argv[1:], " ") + "\n"))
		return 0
	},
	"printf": func(p *Process) int {
		p.Print([]byte(strings.ReplaceAll(strings.Join(p.Argv[1:], ""), `\n`, "\n")))
		return 0
	},
	"hostname": func(p *Process) int {
		p.Print([]byte(p.Hostname() + "\n"))
		return 0
	},
	"uname": func(p *Process) int {
		p.Print([]byte(p.Hostname() + "\n"))
		return 0
	},
	"pwd": func(p *Process) int {
		p.Print([]byte(p.Cwd + "\n"))
		return 0
	},
	"env": func(p *Process) int {
		last := map[string]string{}
		for _, kv := range p.Env {
			key, value, _ := strings.Cut(kv, "=")
			last[key] = value
		}
		for _, key := range slices.Sorted(maps.Keys(last)) {
			p.Print(fmt.Appendf(nil, "%s=%s\n", key, last[key]))
		}
		return 0
	},
	"test": func(p *Process) int {
		if len(p.Argv) == 3 && p.Argv[1] == "-e" && p.Stat(p.Argv[2]) {
			return 0
		}
		return 1
	},
	"rm": func(p *Process) int {
		for _, name := range p.Argv[1:] {
			if strings.HasPrefix(name, "-") {
				continue
			}
			if err := p.Remove(name); err != nil {
				return complain(p, err)
			}
		}
		return 0
	},
	"mkdir": func(p *Process) int {
		for _, name := range p.Argv[1:] {
			if !strings.HasPrefix(name, "-") {
				p.m.s.Files.mkdirAll(p.abs(name))
			}
		}
		return 0
	},
}

func complain(p *Process, err error) int {
	p.PrintError(fmt.Appendf(nil, "%s: %v\n", p.Argv[0], err))
	return 1
}

// cat copies files, or its input.
type cat struct{}

// Handle copies.
func (c *cat) Handle(p *Process, e Event) {
	switch {
	case e.Kind == Started && len(p.Argv) > 1:
		for _, name := range p.Argv[1:] {
			b, err := p.ReadFile(name)
			if err != nil {
				p.Exit(complain(p, err))
				return
			}
			p.Print(b)
		}
		p.Exit(0)
	case e.Kind == Input:
		p.Print(e.Data)
	case e.Kind == InputEnd:
		p.Exit(0)
	}
}

// sleep ends after a number of seconds, or never ("infinity").
type sleep struct{}

// Handle waits.
func (s *sleep) Handle(p *Process, e Event) {
	switch e.Kind {
	case Started:
		if len(p.Argv) > 1 && p.Argv[1] == "infinity" {
			return
		}
		seconds := 0.0
		if len(p.Argv) > 1 {
			var err error
			if seconds, err = strconv.ParseFloat(p.Argv[1], 64); err != nil {
				p.Exit(complain(p, err))
				return
			}
		}
		p.WakeAfter(time.Duration(seconds * float64(time.Second)))
	case Woken:
		p.Exit(0)
	}
}

// server answers on a port, its first argument: echod each line with itself,
// httpd each request with 200 and the host name.
type server struct{ Request bool }

// Handle answers.
func (s *server) Handle(p *Process, e Event) {
	switch e.Kind {
	case Started:
		port, err := strconv.ParseUint(p.Argv[len(p.Argv)-1], 10, 16)
		if err == nil && !p.Listen(uint16(port)) {
			err = fmt.Errorf("port %d is taken", port)
		}
		if err != nil {
			p.Exit(complain(p, err))
		}
	case Asked:
		line := bytes.TrimSuffix(e.Data, []byte("\r"))
		if p.name == "echod" {
			p.Answer(append(line, '\n'))
			return
		}
		if len(line) == 0 {
			body := p.Hostname() + "\n"
			p.Answer(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body))
			p.Hangup()
		}
	}
}

// Counter counts in memory, a hundred times a second of running. It prints
// the number as a line each time; with arguments it writes it to the file of
// the first, and answers every line on the port of the second with it.
type Counter struct{ N int }

// Handle counts.
func (c *Counter) Handle(p *Process, e Event) {
	switch e.Kind {
	case Started:
		if len(p.Argv) > 2 {
			if port, err := strconv.ParseUint(p.Argv[2], 10, 16); err != nil || !p.Listen(uint16(port)) {
				p.Exit(complain(p, fmt.Errorf("cannot listen on %q", p.Argv[2])))
				return
			}
		}
		fallthrough
	case Woken:
		c.N++
		line := fmt.Appendf(nil, "%d\n", c.N)
		if len(p.Argv) > 1 {
			if err := p.WriteFile(p.Argv[1], line); err != nil {
				p.Exit(complain(p, err))
				return
			}
		} else {
			p.Print(line)
		}
		p.WakeAfter(10 * time.Millisecond)
	case Asked:
		p.Answer(fmt.Appendf(nil, "%d\n", c.N))
	}
}
