package worker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(burnVar); dir != "" {
		burn(dir)
		return
	}
	if dir := os.Getenv(killedVar); dir != "" {
		killed(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
