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
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	defer context.AfterFunc(sigterm, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(sigterm), 20*time.Second) // below the supervisor's
		defer cancel()
		_ = srv.Shutdown(stopping)
		ended <- then(stopping)
	})()
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended // Serve returns when Shutdown begins
}
