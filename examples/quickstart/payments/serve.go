package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// serve serves h until sigterm.
func serve(sigterm context.Context, h http.Handler, endpoints []string) error {
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	hint(endpoints, lis.Addr())
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

// hint prints what to try, and starts a provider if there is none.
func hint(endpoints []string, addr net.Addr) {
	if *provider == "" {
		var charges atomic.Int64
		*provider, _ = program.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n := charges.Add(1)
			log.Printf("the provider has made charge %d", n)
			if n%2 == 1 {
				time.Sleep(2 * *patience) // and says so too late
			}
			fmt.Fprintf(w, "charge %d", n)
		}))
	}
	log.Print(commands(endpoints, addr))
}
