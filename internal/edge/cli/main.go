package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// Version is what `make build` writes in.
var Version = "dev"

// App is one run of the command line.
type App struct {
	In  *os.File
	Out io.Writer
	Err io.Writer

	Began time.Time // of the command

	JSON bool   // --json
	Home string // --home; empty: $BROOD_HOME or ~/.brood
	// HandOver replaces this program by the one that has all commands, with the
	// same arguments. It returns only when it fails.
	HandOver func() error
	// Shorthand is the NAME of "brood NAME" that was taken for a task.
	Shorthand string
	Root      *cobra.Command // set by Main
}

// New is a command line on the files of this process.
func New() *App {
	return &App{Began: time.Now(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
}

// Main runs the command line and returns its exit code. args are without the
// program's name.
func (a *App) Main(args []string, commands ...*cobra.Command) int {
	root := a.Tree(commands...)
	args, a.Shorthand = expand(root, Helped(args))
	root.SetArgs(args)
	return a.Report(root.ExecuteContext(context.Background()))
}

// Action is what a command does.
type Action func(ctx context.Context, args []string) error

// Interruptible runs an action whose context ends with the first Ctrl-C or
// SIGTERM. The second ends the program at once.
func Interruptible(f Action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := Interrupts(cmd.Context())
		defer stop()
		return f(ctx, args)
	}
}

// Interrupts is ctx that ends as Interruptible says.
func Interrupts(ctx context.Context) (context.Context, context.CancelFunc) {
	heeded := Heeded()
	if len(heeded) == 0 {
		return context.WithCancel(ctx) // NotifyContext takes none for all
	}
	ctx, stop := signal.NotifyContext(ctx, heeded...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Heeded are the signals that end a command. What whoever started us chose to
// ignore stays ignored: nohup, or the & of a shell.
func Heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}

// Dir is the home that the command works with.
func (a *App) Dir() (*home.Home, error) {
	if a.Home != "" {
		return homeAt(a.Home)
	}
	dir, err := home.Default()
	if err != nil {
		return nil, err
	}
	return homeAt(dir)
}

// OwnDir is Dir for a command that writes there.
func (a *App) OwnDir() (*home.Home, error) {
	h, err := a.Dir()
	if err != nil {
		return nil, err
	}
	return h, home.Claim(h.Dir())
}

func homeAt(dir string) (*home.Home, error) {
	abs, err := Absolute(dir)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "--home %s: %w", dir, err)
	}
	return home.At(abs), nil
}
