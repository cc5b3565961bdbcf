package main

import (
	"context"
	"errors"
	"fmt"
	"log"
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
			time.Sleep(300 * time.Millisecond)
			fmt.Fprint(w, "fine")
		}))
		defer stop()
		*url = at
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var answered, busy atomic.Int64
	var errs [40]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			_, err := call(ctx, partner, *url)
			for ; errors.Is(err, errBusy) && ctx.Err() == nil; _, err = call(ctx, partner, *url) {
				busy.Add(1) // an HTTP server answers 503; this caller comes again
				_ = program.Sleep(ctx, 200*time.Millisecond)
			}
			if errs[i] = err; err == nil {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	log.Printf("callers were sent away %d times, and came again", busy.Load())
	fmt.Printf("%d answered; at most %d at the partner at a time\n", answered.Load(), most.Load())
	return errors.Join(errs[:]...)
}
