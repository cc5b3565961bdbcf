package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

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
