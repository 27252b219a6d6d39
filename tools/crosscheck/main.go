// Command crosscheck says whether the packages of a module compile for other
// platforms, without compiling them: it only checks types, of what is imported
// no more than what others see. That takes seconds where compiling everything
// anew for each platform takes minutes.
//
//	go run ./crosscheck [-root ..] [-tests] linux/arm64 darwin/arm64
//
// It ends with 1 when a package does not compile, and says why.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "crosscheck: %v\n", err)
		}
		os.Exit(1)
	}
}

func run(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("crosscheck", flag.ContinueOnError)
	flags.SetOutput(errOut)
	root := flags.String("root", ".", "the module's folder")
	tests := flags.Bool("tests", false, "check test files too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name platforms, such as linux/arm64")
	}
	for _, platform := range flags.Args() {
		n, err := check(*root, platform, *tests)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Fprintf(out, "%s: %d packages compile\n", platform, n)
	}
	return nil
}

// check returns how many packages of the module compile for a platform, or
// what keeps one from it.
func check(root, platform string, tests bool) (int, error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok || system == "" || arch == "" {
		return 0, errors.New("a platform is a system and a processor, such as linux/arm64")
	}
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes | packages.NeedModule,
		Dir:  root, Tests: tests,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, errors.New("there is no package")
	}
	var fails []error
	packages.Visit(all, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			fails = append(fails, e)
		}
	})
	return len(all), errors.Join(fails...)
}
