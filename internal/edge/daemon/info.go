package daemon

import (
	"context"
	"fmt"
	"os"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	daemonv1 "brood/api/cua/daemon/v1"
)

type daemonService struct{ d *Daemon }

// GetInfo says who the daemon is.
func (s *daemonService) GetInfo(context.Context, *connect.Request[daemonv1.GetInfoRequest]) (*connect.Response[daemonv1.GetInfoResponse], error) {
	d := s.d
	return connect.NewResponse(&daemonv1.GetInfoResponse{
		Version: d.p.Version, Pid: uint32(d.info.PID), SocketPath: d.info.SocketPath,
		LoopbackUrl: d.info.LoopbackURL, LoopbackToken: d.info.Token,
		Features:  []string{"sandboxes", "checkpoints", "fork_batch", "driver:" + d.driver.Name()},
		StartedAt: timestamppb.New(d.started), Executable: d.program, BuildId: d.build,
	}), nil
}

// Shutdown ends the daemon. Sandboxes run on, and the next daemon adopts them.
func (s *daemonService) Shutdown(context.Context, *connect.Request[daemonv1.ShutdownRequest]) (*connect.Response[daemonv1.ShutdownResponse], error) {
	s.d.log.Info("asked to shut down")
	s.d.stop()
	return connect.NewResponse(&daemonv1.ShutdownResponse{}), nil
}

// buildID tells two builds of one version apart, as the protocol does: size
// and modification time of the executable.
func buildID(version string) string {
	st, err := os.Stat(executable())
	if err != nil {
		return version
	}
	return fmt.Sprintf("%s-%x-%x", version, st.Size(), st.ModTime().UnixNano())
}
