// Command fuzzall runs every fuzz test of the repository, one after the
// other, each for a given time, and says what each did.
//
//	go run ./fuzzall -time 60s [-root ..]
//
// It looks in the modules in -root and its folder runtime, and ends with 1
// when a fuzz test found something or could not run. What one finds is written
// by go test to testdata/fuzz beside the test, where it is a test case from
// then on. Fuzz tests run one at a time because each takes all cores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		os.Exit(130)
	default:
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "fuzzall: %v\n", err)
		}
		os.Exit(1)
	}
}

// budget is what each fuzz test gets: a time, or a number of runs.
type budget struct {
	text string
	time time.Duration // 0 for a number of runs
}

func (b *budget) String() string { return b.text }

// Set takes what go test's -fuzztime takes.
func (b *budget) Set(text string) error {
	if number, ok := strings.CutSuffix(text, "x"); ok {
		if n, err := strconv.Atoi(number); err != nil || n <= 0 {
			return errors.New("is no number of runs")
		}
		*b = budget{text: text}
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("is no time above 0")
	}
	*b = budget{text: text, time: d}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fuzzall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	each := budget{text: "60s", time: time.Minute}
	flags.Var(&each, "time", "how long each fuzz test runs: a time, or a number of runs such as 1000x")
	root := flags.String("root", "..", "folder of the repository")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp // flag has said what is wrong
	}
	if flags.NArg() > 0 {
		return errors.New("usage: go run ./fuzzall -time 60s [-root ..]")
	}
	var targets []target
	for _, module := range []string{".", "runtime"} {
		found, err := findTargets(ctx, filepath.Join(*root, module))
		if err != nil {
			return err
		}
		targets = append(targets, found...)
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz test is in %s: is -root the folder of the repository?", *root)
	}
	fmt.Fprintf(stdout, "%d fuzz tests, %s each\n", len(targets), each.text)
	var results []result
	for i, t := range targets {
		r := fuzz(ctx, t, each, func(line string) {
			fmt.Fprintf(stdout, "[%d/%d] %s: %s\n", i+1, len(targets), t, line)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		results = append(results, r)
	}
	return summarize(stdout, results)
}

// summarize prints a line for each result, and fails when one did.
func summarize(stdout io.Writer, results []result) error {
	bad := 0
	fmt.Fprintln(stdout)
	for _, r := range results {
		fmt.Fprintf(stdout, "%-10s %12d runs %6d new inputs  %s\n", r.verdict(), r.runs, r.interesting, r.target)
		if r.err != nil {
			bad++
		}
	}
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(stdout, "\n%s: %v\n%s\n", r.target, r.err, r.output)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d fuzz tests failed", bad, len(results))
	}
	fmt.Fprintf(stdout, "%d fuzz tests found nothing\n", len(results))
	return nil
}
