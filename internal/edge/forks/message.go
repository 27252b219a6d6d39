package forks

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"brood/internal/edge/cli"
	"brood/internal/wire"
)

// message writes a message of the protocol as one line of JSON.
func (a *app) message(m proto.Message) error {
	b, err := wire.JSON(m)
	if err != nil {
		return err
	}
	return a.Line(b)
}

// ago says how long ago something was.
func ago(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return cli.Brief(time.Since(t.AsTime())) + " ago"
}

// in says when something will be.
func in(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return "in " + cli.Brief(time.Until(t.AsTime()))
}

// word is the value of an enum without its prefix, in lower case.
func word(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value.String(), prefix), "_", "-"))
}

// named writes a message of the protocol with the name of what it belongs to.
func (a *app) named(name, kind string, m proto.Message) error {
	b, err := wire.JSON(m)
	if err != nil {
		return err
	}
	n, err := json.Marshal(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "{\"name\":%s,%q:%s}\n", n, kind, b)
	return err
}
