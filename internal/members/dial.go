package members

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// dials are the calls of etcd's client that dial one member, one at a time for each. While such a call dials, the end of its
// ctx does not end it: with grpc.WithBlock among the client's DialOptions and a member that is down, it lasts until the
// client is closed, or for its DialTimeout. So dialing does not wait for it longer than its ctx lasts. It is safe for
// concurrent use.
type dials struct {
	mu    sync.Mutex
	turns map[string]chan struct{}
}

// of returns the turn of a member, which is taken by sending to it.
func (d *dials) of(endpoint string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.turns[endpoint]
	if turn == nil {
		turn = make(chan struct{}, 1)
		if d.turns == nil {
			d.turns = map[string]chan struct{}{}
		}
		d.turns[endpoint] = turn
	}
	return turn
}

// dialing returns the result of call, or ctx's error once that has ended. Then the goroutine of call may stay until the
// client is closed, and drop gets what call still returns.
func dialing[T any](ctx context.Context, d *dials, endpoint string, call func() (T, error), drop func(T)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	turn := d.of(endpoint)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return v, ctx.Err()
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	go func() {
		v, err := call()
		<-turn
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
		}
	}()
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// Status asks one member for its status. Unlike that of etcd's client it returns when ctx ends, also while it dials.
func (e *Etcd) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	return dialing(ctx, e.dials, endpoint, func() (*clientv3.StatusResponse, error) { return e.Client.Status(ctx, endpoint) },
		func(*clientv3.StatusResponse) {})
}
