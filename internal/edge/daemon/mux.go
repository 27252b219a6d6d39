package daemon

import (
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

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
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(services...), opts))
	all := http.NewServeMux()
	all.Handle("/", detailed(mux))
	reflector := newReflector(services)
	for _, name := range []string{reflectv1.ServerReflection_ServiceDesc.ServiceName, reflectv1alpha.ServerReflection_ServiceDesc.ServiceName} {
		all.Handle("/"+name+"/", reflector)
	}
	return all
}

// newReflector answers what services there are and what their messages look
// like. It is gRPC's own server: the one for connect unpacks descriptors in
// every start of the program, also where no daemon is wanted.
func newReflector(services []string) http.Handler {
	srv, all := grpc.NewServer(), named{}
	for _, name := range services {
		all[name] = grpc.ServiceInfo{}
	}
	options := reflection.ServerOptions{Services: all}
	reflectv1.RegisterServerReflectionServer(srv, reflection.NewServerV1(options))
	reflectv1alpha.RegisterServerReflectionServer(srv, reflection.NewServer(options))
	return srv
}

// named are the services that reflection lists.
type named map[string]grpc.ServiceInfo

// GetServiceInfo returns them.
func (n named) GetServiceInfo() map[string]grpc.ServiceInfo { return n }
