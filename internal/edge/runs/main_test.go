package runs_test

import (
	"os"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"brood/internal/edge/cli"
	"brood/internal/edge/runs"
)

// asBrood makes this test's program the command line instead of testing it.
const asBrood = "RUNS_TEST_IS_BROOD"

func TestMain(m *testing.M) {
	if os.Getenv(asBrood) != "" {
		a := cli.New()
		os.Exit(a.Main(os.Args[1:], runs.Commands(a, nil, &cobra.Command{Use: "serve"})...))
	}
	goleak.VerifyTestMain(m)
}
