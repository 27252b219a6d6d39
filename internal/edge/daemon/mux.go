package daemon

import (
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"brood/api/brood/v1/broodv1connect"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/wire"
)

// aliasFork is the route that the protocol's comments name; it is in no
// .proto and means the same as ForkBatchService's (F1).
const aliasFork = "/cua.daemon.v1.SandboxService/ForkSandboxBatch"

// mux routes every service, with health and reflection.
func (d *Daemon) mux() http.Handler {
	opts := connect.WithHandlerOptions(connect.WithReadMaxBytes(wire.MaxMessageBytes), connect.WithInterceptors(&interceptor{log: d.log}))
	mux := http.NewServeMux()
	batch := &forkBatchService{d}
	path, handler := daemonv1connect.NewForkBatchServiceHandler(batch, opts)
	mux.Handle(path, handler)
	mux.Handle(aliasFork, connect.NewServerStreamHandler(aliasFork, batch.ForkSandboxBatch, opts))
	mux.Handle(daemonv1connect.NewSandboxServiceHandler(&cuaSandboxService{d}, opts))
	mux.Handle(daemonv1connect.NewDaemonServiceHandler(&daemonService{d}, opts))
	mux.Handle(daemonv1connect.NewRuntimeServiceHandler(&runtimeService{d}, opts))
	mux.Handle(broodv1connect.NewSandboxServiceHandler(&sandboxService{d}, opts))
	mux.Handle(broodv1connect.NewExecServiceHandler(&execService{d}, opts))
	mux.Handle(broodv1connect.NewFileServiceHandler(&fileService{d}, opts))
	mux.Handle(broodv1connect.NewLogServiceHandler(&logService{d}, opts))
	mux.Handle(broodv1connect.NewCheckpointServiceHandler(&checkpointService{d}, opts))
	mux.Handle(broodv1connect.NewBatchServiceHandler(&batchService{d}, opts))
	mux.Handle(broodv1connect.NewImageServiceHandler(&imageService{d}, opts))
	services := []string{
		daemonv1connect.ForkBatchServiceName, daemonv1connect.SandboxServiceName,
		daemonv1connect.DaemonServiceName, daemonv1connect.RuntimeServiceName,
		broodv1connect.SandboxServiceName, broodv1connect.ExecServiceName, broodv1connect.FileServiceName,
		broodv1connect.LogServiceName, broodv1connect.CheckpointServiceName, broodv1connect.BatchServiceName, broodv1connect.ImageServiceName,
	}
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(services...)))
	reflector := grpcreflect.NewStaticReflector(services...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	return mux
}
