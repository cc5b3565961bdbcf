package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// callers plays the callers of the service, and the partner if there is none. It stays behind when the program is
// copied: call the partner from your handlers.
func callers(ctx context.Context, partner *http.Client) error {
	var working, most atomic.Int64
	if *url == "" {
		at, stop := program.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n := working.Add(1)
			defer working.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			time.Sleep(50 * time.Millisecond)
			fmt.Fprint(w, "fine")
		}))
		defer stop()
		*url = at
	}
	var answered, busy atomic.Int64
	var errs [40]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			switch _, err := call(ctx, partner, *url); {
			case err == nil:
				answered.Add(1)
			case errors.Is(err, errBusy): // an HTTP server answers 503
				busy.Add(1)
			default:
				errs[i] = err
			}
		})
	}
	all.Wait()
	fmt.Printf("%d answered, %d sent away; at most %d at the partner at a time\n", answered.Load(), busy.Load(), most.Load())
	return errors.Join(errs[:]...)
}
