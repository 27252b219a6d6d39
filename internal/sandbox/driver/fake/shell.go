package fake

import (
	"fmt"
	"strconv"
	"strings"
)

// shell runs lists of simple commands, of -c or of its input: words with
// quotes and $NAME, `;`, `&&`, `||`, `&`, > and >>, and the builtins exit, cd,
// export and wait. There is nothing else of a shell in it.
type shell struct {
	Script []string // tokens still to be run
	Typed  string   // input that is no whole line yet
	Reads  bool     // its script is its input
	Ended  bool     // the input has
	Status int
	Child  int // that it waits for
	Jobs   []int
	Waits  bool // for Jobs

	busy bool // in run: what comes meanwhile is only noted
}

// Handle runs what can be run now.
func (s *shell) Handle(p *Process, e Event) {
	switch e.Kind {
	case Started:
		if len(p.Argv) > 2 && strings.HasPrefix(p.Argv[1], "-") && strings.HasSuffix(p.Argv[1], "c") {
			s.Script = tokens(p.Argv[2])
		} else {
			s.Reads = true
		}
	case Input:
		if q := p.m.s.procs[s.Child]; q != nil {
			q.event(e)
			return
		}
		s.Typed += string(e.Data)
	case InputEnd:
		s.Ended = true
		if q := p.m.s.procs[s.Child]; q != nil {
			q.event(e)
			return
		}
	case ChildEnded:
		if e.PID == s.Child {
			s.Child, s.Status = 0, e.Code
		}
	case Signalled:
		if p.TTY && e.Signal == "SIGINT" {
			p.Catch()
			if q := p.m.s.procs[s.Child]; q != nil {
				p.m.exit(q, 130, "SIGINT")
			}
		}
		return
	default:
		return
	}
	s.run(p)
}

// run runs commands until it has to wait.
func (s *shell) run(p *Process) {
	if s.busy {
		return
	}
	s.busy = true
	defer func() { s.busy = false }()
	for s.Child == 0 && !p.gone {
		if s.Waits && p.m.anyRuns(s.Jobs) {
			return
		}
		s.Waits = false
		if len(s.Script) == 0 {
			if !s.more(p) {
				return
			}
			continue
		}
		s.command(p)
	}
}

// anyRuns reports whether one of the processes runs.
func (m *machine) anyRuns(pids []int) bool {
	for _, pid := range pids {
		if m.s.procs[pid] != nil {
			return true
		}
	}
	return false
}

// more takes the next line of the input; false: there is none now, or the
// shell has ended.
func (s *shell) more(p *Process) bool {
	line, rest, whole := strings.Cut(s.Typed, "\n")
	switch {
	case s.Reads && whole:
		s.Script, s.Typed = tokens(line), rest
		return true
	case !s.Reads || s.Ended:
		p.Exit(s.Status)
	}
	return false
}

// command runs the next simple command.
func (s *shell) command(p *Process) {
	n := 0
	for n < len(s.Script) && !separator(s.Script[n]) {
		n++
	}
	words, end := s.Script[:n], ";"
	if n < len(s.Script) {
		end = s.Script[n]
		n++
	}
	s.Script = s.Script[n:]
	if len(words) > 0 {
		s.simple(p, words, end == "&")
	}
	// What comes behind is decided when the status is known, so a child that
	// is waited for puts the separator back.
	if s.Child != 0 && (end == "&&" || end == "||") {
		s.Script = append([]string{end}, s.Script...)
		return
	}
	if end == "&&" && s.Status != 0 || end == "||" && s.Status == 0 {
		s.skip()
	}
}

// skip leaves out the command behind a separator that said so.
func (s *shell) skip() {
	for len(s.Script) > 0 && !separator(s.Script[0]) {
		s.Script = s.Script[1:]
	}
	if len(s.Script) > 0 && s.Script[0] == ";" {
		s.Script = s.Script[1:]
	}
}

func separator(token string) bool {
	return token == ";" || token == "&&" || token == "||" || token == "&"
}

// simple runs one command: a builtin, or a child.
func (s *shell) simple(p *Process, words []string, background bool) {
	argv, out := s.expand(p, words)
	if len(argv) == 0 {
		return
	}
	if name, value, ok := strings.Cut(argv[0], "="); ok && len(argv) == 1 && name != "" {
		p.Env = append(p.Env, name+"="+value)
		s.Status = 0
		return
	}
	switch argv[0] {
	case "exit":
		if len(argv) > 1 {
			s.Status, _ = strconv.Atoi(argv[1])
		}
		p.Exit(s.Status)
	case "cd":
		p.Cwd = p.abs(argv[len(argv)-1])
	case "export":
		p.Env = append(p.Env, argv[1:]...)
	case "wait":
		s.Waits = true
	default:
		child, err := p.spawn(out, argv)
		if err != nil {
			p.PrintError(fmt.Appendf(nil, "sh: %v\n", err))
			s.Status = 127
			return
		}
		s.Status = 0
		if background {
			s.Jobs = append(s.Jobs, child.PID)
		} else {
			s.Child = child.PID
		}
		p.m.run(child)
		if !background && s.Ended {
			child.event(Event{Kind: InputEnd})
		}
	}
}

// expand replaces variables and takes redirections out.
func (s *shell) expand(p *Process, words []string) (argv []string, out string) {
	out = p.out
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case (w == ">" || w == ">>") && i+1 < len(words):
			i++
			name := p.abs(s.variables(p, words[i]))
			out = filePrefix + name
			if w == ">" {
				if err := p.m.s.Files.write(name, nil, 0o644); err != nil {
					p.PrintError(fmt.Appendf(nil, "sh: %v\n", err))
				}
			}
		default:
			argv = append(argv, s.variables(p, w))
		}
	}
	return argv, out
}

// literal marks a dollar sign that stands for itself.
const literal = "\x01"

func (s *shell) variables(p *Process, w string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(w, "$")
		b.WriteString(before)
		if !found {
			return strings.ReplaceAll(b.String(), literal, "$")
		}
		n := 0
		switch {
		case strings.HasPrefix(rest, "{") && strings.Contains(rest, "}"):
			name, after, _ := strings.Cut(rest[1:], "}")
			b.WriteString(p.Getenv(name))
			w = after
			continue
		case strings.HasPrefix(rest, "?"):
			b.WriteString(strconv.Itoa(s.Status))
			n = 1
		case strings.HasPrefix(rest, "$"):
			b.WriteString(strconv.Itoa(p.PID))
			n = 1
		default:
			for n < len(rest) && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_", rune(rest[n])) {
				n++
			}
			if n == 0 {
				b.WriteByte('$')
			}
			b.WriteString(p.Getenv(rest[:n]))
		}
		w = rest[n:]
	}
}

// tokens cuts a script into words and separators.
func tokens(script string) []string {
	var all []string
	var word strings.Builder
	open := false
	end := func() {
		if open {
			all = append(all, word.String())
		}
		word.Reset()
		open = false
	}
	for i := 0; i < len(script); i++ {
		c := script[i]
		switch {
		case c == '\'' || c == '"':
			n := strings.IndexByte(script[i+1:], c)
			if n < 0 {
				n = len(script) - i - 1
			}
			text := script[i+1 : i+1+n]
			if c == '\'' {
				text = strings.ReplaceAll(text, "$", literal)
			}
			word.WriteString(text)
			open = true
			i += n + 1
		case c == ' ' || c == '\t':
			end()
		case c == '\n' || c == ';':
			end()
			all = append(all, ";")
		case strings.HasPrefix(script[i:], "&&") || strings.HasPrefix(script[i:], "||") || strings.HasPrefix(script[i:], ">>"):
			end()
			all = append(all, script[i:i+2])
			i++
		case c == '&' || c == '>':
			end()
			all = append(all, string(c))
		default:
			word.WriteByte(c)
			open = true
		}
	}
	end()
	return all
}
