package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// serve serves h until sigterm, and then calls another function.
func serve(sigterm context.Context, h http.Handler, then func(context.Context) error) error {
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	hint(lis.Addr())
	if *provider == "" { // in a copy without hint
		return errors.New("-provider is missing")
	}
	srv := &http.Server{ // ReadTimeout bounds a client that sends its body slowly; WriteTimeout is above that and the work
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
	ended := make(chan error, 1)
	defer context.AfterFunc(sigterm, func() {
		_ = within(15*time.Second, srv.Shutdown)
		ended <- within(5*time.Second, then) // a time of its own; both are below the supervisor's
	})()
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended // Serve returns when Shutdown begins
}

// within calls a function with a timeout.
func within(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}
