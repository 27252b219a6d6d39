package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// result is what one fuzz test did.
type result struct {
	target      target
	runs        int64
	interesting int64
	finding     string // file of the input that failed, from the package's folder
	err         error
	output      string // the end of what it printed, when it failed
}

func (r result) verdict() string {
	switch {
	case r.finding != "":
		return "FOUND"
	case r.err != nil:
		return "FAILED"
	default:
		return "ok"
	}
}

const (
	// slack is what building, the first round over the known inputs and the
	// end may take beyond the given time.
	slack = 10 * time.Minute
	// minimize bounds how long an input is made smaller; go's own default, a
	// minute, would eat all of a short run.
	minimize = 10 * time.Second
	// keptLines of output are shown when a fuzz test fails.
	keptLines = 60
)

// fuzz runs one fuzz test for the given time; say gets its progress.
func fuzz(ctx context.Context, t target, each budget, say func(line string)) result {
	ctx, cancel := context.WithTimeout(ctx, each.time+slack)
	defer cancel()
	cmd := goCommand(ctx, t.module, "test", "-run", "^$", "-fuzz", "^"+t.name+"$",
		"-fuzztime", each.text, "-fuzzminimizetime", minimize.String(), t.pkg)
	r := result{target: t}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		r.err = err
		return r
	}
	cmd.Stderr = cmd.Stdout
	if r.err = cmd.Start(); r.err != nil {
		return r
	}
	tail := r.follow(pipe, say)
	err = cmd.Wait()
	switch {
	case err == nil && r.runs == 0:
		r.err = errors.New("it ended well without a run")
	case err == nil:
	case ctx.Err() != nil:
		r.err = fmt.Errorf("it did not end in %v: %w", each.time+slack, ctx.Err())
	case r.finding != "":
		r.err = fmt.Errorf("found an input that fails: %s", r.finding)
	default:
		r.err = err
	}
	if r.err != nil {
		r.output = strings.Join(tail, "\n")
	}
	return r
}

var (
	progressForm = regexp.MustCompile(`^fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)
	findingForm  = regexp.MustCompile(`Failing input written to (\S+)`)
)

// follow reads what go test prints to its end, takes the numbers from it, and
// returns the last lines that are no progress.
func (r *result) follow(out io.Reader, say func(string)) []string {
	var tail []string
	lines := bufio.NewReader(out)
	for {
		// A line has no bound, so it is cut rather than refused.
		raw, err := lines.ReadString('\n')
		if line := strings.TrimRight(raw, "\r\n"); line != "" {
			tail = r.line(line, tail, say)
		}
		if err != nil {
			return tail
		}
	}
}

func (r *result) line(line string, tail []string, say func(string)) []string {
	if m := progressForm.FindStringSubmatch(line); m != nil {
		r.runs, _ = strconv.ParseInt(m[1], 10, 64)
		r.interesting, _ = strconv.ParseInt(m[2], 10, 64)
		say(strings.TrimPrefix(line, "fuzz: "))
		return tail
	}
	if m := findingForm.FindStringSubmatch(line); m != nil {
		r.finding = m[1]
	}
	const width = 500
	if len(line) > width {
		line = line[:width] + "…"
	}
	if tail = append(tail, line); len(tail) > keptLines {
		tail = tail[1:]
	}
	return tail
}
