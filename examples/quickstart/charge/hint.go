package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// hint prints what to try, and starts a provider if there is none.
func hint(addr net.Addr) {
	if *provider == "" {
		var mu sync.Mutex
		charges := map[string]int{} // by key
		*provider, _ = program.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			n, again := charges[key]
			if !again {
				n = len(charges) + 1
				charges[key] = n
			}
			mu.Unlock()
			log.Printf("the provider is asked under the key %s: charge %d (made before: %t)", key, n, again)
			if !again && n%2 == 1 {
				time.Sleep(2 * *patience) // and says so too late
			}
			fmt.Fprintf(w, "charge %d", n)
		}))
	}
	log.Printf(`serving payments on %[1]v. Send one, until it is paid (201):

  curl -i %[1]v/payments -H 'Idempotency-Key: "payment-1"' -d '{"order":"order-17","cents":100}'
`, addr)
}
