package share

import (
	"maps"
	"strings"

	"brood/internal/edge/cli"
	"brood/internal/edge/runs"
	"brood/internal/fabric/blob"
	"brood/internal/run/cache"
	"brood/internal/run/cache/artifact"
	"brood/internal/run/cache/reapi"
)

// Connect opens the shared cache of a run.
func Connect(s runs.Shared) (c cache.Remote, end func() error, err error) {
	if !strings.HasPrefix(s.Address, "grpc://") && !strings.HasPrefix(s.Address, "grpcs://") {
		server, err := artifact.New(artifact.Config{API: s.Address, Token: s.Token, Team: s.Team, TeamID: s.TeamID, Agent: "brood/" + cli.Version})
		if err != nil {
			return nil, nil, err
		}
		return server, func() error { server.Close(); return nil }, nil
	}
	headers := map[string]string{}
	maps.Copy(headers, s.Headers)
	if s.Token != "" {
		headers["authorization"] = "Bearer " + s.Token
	}
	client, err := blob.Dial(blob.ClientConfig{Address: s.Address, Instance: s.Instance, Headers: headers})
	if err != nil {
		return nil, nil, err
	}
	return reapi.New(client), client.Close, nil
}
