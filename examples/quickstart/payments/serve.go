package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// serve serves h until sigterm.
func serve(sigterm context.Context, h http.Handler, endpoints []string) error {
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	hint(endpoints, lis.Addr())
	if *provider == "" { // in a copy without hint
		return errors.New("-provider is missing")
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	defer context.AfterFunc(sigterm, func() {
		defer close(ended)
		_ = srv.Shutdown(context.WithoutCancel(sigterm))
	})()
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended // Serve returns when Shutdown begins
	return nil
}
