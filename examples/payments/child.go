package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"
)

// childEnv makes the program a child. It holds the settings below.
const childEnv = "PAYMENTS_CHILD"

// settings are the settings of a child.
type settings struct {
	Name      string // of a server; empty for the provider
	Provider  string // its URL
	Endpoints []string
	Namespace string
	TTL       time.Duration
	Margin    time.Duration
	Lifetime  time.Duration // of the markers of marker.go
}

// event is a line that a child writes for its parent.
type event struct {
	Kind  string `json:"kind"`
	Addr  string `json:"addr,omitempty"`
	Order string `json:"order,omitempty"`
}

// The kinds of events.
const (
	evReady  = "ready"
	evHungUp = "hung up" // the server has noticed that the client of a payment has hung up
)

func isChild() bool { return os.Getenv(childEnv) != "" }

// childMain runs the provider or a server, until its standard input ends.
func childMain() {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent, too, which ends its children
	var s settings
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &s)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
		if s.Name == "" {
			err = serve(ctx, newProvider().handler(), os.Stdout)
		} else {
			err = serverMain(ctx, s, os.Stdout)
		}
		if ctx.Err() != nil {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "payments:", s.Name, err)
		os.Exit(1)
	}
}

// serve serves h until ctx ends, and then waits for the requests in progress. It emits its address.
func serve(ctx context.Context, h http.Handler, out io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	emit(out, event{Kind: evReady, Addr: ln.Addr().String()})
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if srv.Shutdown(closing) != nil {
		_ = srv.Close()
	}
	<-served
	return nil
}

// emit writes an event in one piece.
func emit(out io.Writer, e event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent has ended
	}
}

// reply writes a value as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
