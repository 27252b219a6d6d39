// Package keep holds file descriptors for a process that may die.
//
// The holder serves a Store to each launcher it starts, over a socket pair; a
// new launcher finds there what its predecessor put. The store knows nothing
// about what the descriptors are. It is safe for concurrent use; a Client
// serializes its requests.
package keep

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"brood/internal/sandbox/driver/gvisor/launch"
)

// Request and answer of the holder's socket. Op is put, get, drop, names, or
// quit, which ends the holder.
type message struct {
	Op    string   `json:"op,omitempty"`
	Name  string   `json:"name,omitempty"`
	Names []string `json:"names,omitempty"`
	Error string   `json:"error,omitempty"`
}

// ErrNone is returned by Get for a name that holds nothing.
var ErrNone = errors.New("nothing is kept under that name")

// Store keeps descriptors by name.
type Store struct {
	mu    sync.Mutex
	files map[string]*os.File
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{files: map[string]*os.File{}} }

// Serve answers one launcher until it closes its end. Quit is called when it
// asks the holder to end.
func (s *Store) Serve(conn *launch.Conn, quit func()) error {
	for {
		var req message
		files, err := conn.Receive(&req)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("launcher's request: %w", err)
		}
		if req.Op == "quit" {
			quit()
			return nil
		}
		answer, file := s.answer(req, files)
		var send []*os.File
		if file != nil {
			send = append(send, file)
		}
		if err := conn.Send(answer, send...); err != nil {
			return fmt.Errorf("answer launcher: %w", err)
		}
	}
}

func (s *Store) answer(req message, files []*os.File) (message, *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case req.Op == "put" && len(files) == 1:
		if old := s.files[req.Name]; old != nil {
			_ = old.Close()
		}
		s.files[req.Name] = files[0]
		return message{}, nil
	case len(files) != 0:
		for _, f := range files {
			_ = f.Close()
		}
		return message{Error: "unexpected files"}, nil
	case req.Op == "get":
		f := s.files[req.Name]
		if f == nil {
			return message{Error: ErrNone.Error()}, nil
		}
		return message{}, f
	case req.Op == "drop":
		if f := s.files[req.Name]; f != nil {
			_ = f.Close()
			delete(s.files, req.Name)
		}
		return message{}, nil
	case req.Op == "names":
		return message{Names: slices.Sorted(maps.Keys(s.files))}, nil
	}
	return message{Error: fmt.Sprintf("unknown request %q", req.Op)}, nil
}

// Client is the launcher's side.
type Client struct {
	mu   sync.Mutex
	conn *launch.Conn
}

// NewClient returns the client of the store behind conn.
func NewClient(conn *launch.Conn) *Client { return &Client{conn: conn} }

// Put keeps a duplicate of f under name, replacing what was there.
func (c *Client) Put(name string, f *os.File) error {
	_, _, err := c.ask(message{Op: "put", Name: name}, f)
	return err
}

// Get returns a duplicate of what is kept under name.
func (c *Client) Get(name string) (*os.File, error) {
	_, f, err := c.ask(message{Op: "get", Name: name})
	if err == nil && f == nil {
		err = errors.New("holder answered without a file")
	}
	return f, err
}

// Drop closes what is kept under name, if anything.
func (c *Client) Drop(name string) error {
	_, _, err := c.ask(message{Op: "drop", Name: name})
	return err
}

// Names lists what is kept.
func (c *Client) Names() ([]string, error) {
	m, _, err := c.ask(message{Op: "names"})
	return m.Names, err
}

// Quit ends the holder, and with it every process in its namespace, the
// caller included. There is no answer.
func (c *Client) Quit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Send(message{Op: "quit"})
}

func (c *Client) ask(req message, files ...*os.File) (message, *os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.Send(req, files...); err != nil {
		return message{}, nil, fmt.Errorf("ask holder: %w", err)
	}
	var m message
	got, err := c.conn.Receive(&m)
	if err != nil {
		return message{}, nil, fmt.Errorf("ask holder: %w", err)
	}
	if m.Error == ErrNone.Error() {
		return m, nil, ErrNone
	}
	if m.Error != "" || len(got) > 1 {
		for _, f := range got {
			_ = f.Close()
		}
		return m, nil, fmt.Errorf("ask holder: %s, %d files", m.Error, len(got))
	}
	if len(got) == 1 {
		return m, got[0], nil
	}
	return m, nil, nil
}
