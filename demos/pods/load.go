package main

import (
	"context"
	"sync"
	"time"
)

// pause is how long a client waits after a refusal. It is short, to keep up the load; a client of
// yours follows Retry-After.
const pause = 200 * time.Millisecond

// load begins to send requests, by clients that send one after the other. stop returns when the last
// answer has arrived.
func (d *demo) load(ctx context.Context, policy string) (stop func()) {
	ending := make(chan struct{})
	var wg sync.WaitGroup
	for range d.clients {
		wg.Go(func() {
			for {
				a := d.client.Post(ctx, "/"+policy)
				d.note(a)
				again := time.Now()
				if !a.Served() {
					again = again.Add(pause)
				}
				select {
				case <-ending:
					return
				case <-ctx.Done():
					return
				case <-time.After(max(time.Millisecond, time.Until(again))):
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(ending); wg.Wait() })
}

// atOnce sends n requests at once and returns when all are answered.
func (d *demo) atOnce(ctx context.Context, policy string, n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { d.note(d.client.Post(ctx, "/"+policy)) })
	}
	wg.Wait()
}
