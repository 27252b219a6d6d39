package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// guard lets in who shows the token.
type guard struct{ sum [sha256.Size]byte }

func newGuard(token string) guard { return guard{sha256.Sum256([]byte(token))} }

// admit compares hashes, whose lengths are equal, in a time that tells nothing.
func (g guard) admit(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get("authorization") {
		scheme, token, ok := strings.Cut(v, " ")
		if !ok || !strings.EqualFold(scheme, "bearer") {
			continue
		}
		sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if subtle.ConstantTimeCompare(sum[:], g.sum[:]) == 1 {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "this cache wants a bearer token in the header authorization, and there was none or a wrong one")
}

func (g guard) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := g.admit(ctx); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g guard) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := g.admit(ss.Context()); err != nil {
		return err
	}
	return next(srv, ss)
}
