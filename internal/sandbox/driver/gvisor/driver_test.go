//go:build linux

package gvisor

import (
	"testing"

	"brood/internal/sandbox/drivertest"
)

func TestConformance(t *testing.T) {
	t.Run("Image", func(t *testing.T) {
		drivertest.Run(t, func(t testing.TB) drivertest.Subject { return newSubject(t, shared.erofs, "/bin/probe") })
	})
	t.Run("HostRoot", func(t *testing.T) {
		drivertest.RunState(t, func(t testing.TB) drivertest.Subject { return newSubject(t, shared.host, "/probe/probe") })
	})
}
