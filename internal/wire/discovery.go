package wire

import (
	"encoding/json"

	"brood/internal/base/errs"
)

// Discovery is daemon.json: how to reach the daemon of a home (F4).
type Discovery struct {
	PID         int    `json:"pid"`
	SocketPath  string `json:"socket_path"`
	LoopbackURL string `json:"loopback_url"`
	Token       string `json:"token"`
	Version     string `json:"version"`
}

// ParseDiscovery reads daemon.json.
func ParseDiscovery(b []byte) (Discovery, error) {
	var d Discovery
	if err := json.Unmarshal(b, &d); err != nil {
		return Discovery{}, errs.New(errs.DataLoss, "daemon.json cannot be read (%w): start the daemon again", err)
	}
	if d.SocketPath == "" && d.LoopbackURL == "" {
		return Discovery{}, errs.New(errs.DataLoss, "daemon.json names neither a socket nor an address: start the daemon again")
	}
	return d, nil
}
