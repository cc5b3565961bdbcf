package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pace is how often it is looked whether time has done its work: there is no signal of
// what a store does not say.
const pace = 50 * time.Millisecond

// kept is for how long outcomes are kept where that matters.
const kept = 2 * time.Second

func retention(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	var done atomic.Int64 // when the function has returned; the outcome comes later
	start := time.Now()
	k := w.work()
	k.then = func(context.Context, Attempt) error {
		done.Store(int64(time.Since(start)))
		return nil
	}
	r := k.request()
	r.Retain = kept
	first := w.answer(a.do(r))
	b.replays(r, first)

	// Another payload: as long as it is refused the outcome is there. (Who replays may do
	// so out of its memory.)
	next := w.work()
	var gone time.Duration
	next.then = func(context.Context, Attempt) error {
		gone = time.Since(start) - time.Duration(done.Load())
		return nil
	}
	r.Payload, r.Func = "another payload", next.run
	patience := time.NewTimer(kept + w.opts.Patience)
	defer patience.Stop()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		o := c.do(r)
		if o.err == nil && !o.Replayed {
			break
		}
		w.told(o, Mismatch)
		select {
		case <-tick.C:
		case <-patience.C:
			w.failf("an outcome is still there %v after the end of its %v", w.opts.Patience, kept)
		case <-w.ctx.Done():
			w.failf("waiting for an outcome to go: %w", context.Cause(w.ctx))
		}
	}
	next.ran(1)
	if gone < kept {
		w.failf("an outcome that was to be kept for %v has gone after %v", kept, gone)
	}
	k.ran(1)
}

func nothingIsLeft(w *world) {
	a, b := w.open(), w.open()
	broken := errors.New("broken")
	for n, err := range []error{nil, broken, broken} {
		k := w.work()
		k.then = func(_ context.Context, at Attempt) error {
			if n == 2 {
				_, bad := at.Step("step", func(context.Context) (string, error) { return "value", nil })
				if bad != nil && !errors.Is(bad, errors.ErrUnsupported) {
					return bad
				}
			}
			return err
		}
		r := k.request()
		r.ID, r.Retain, r.Remember = string(rune('a'+n)), time.Second, n == 1
		if o := a.do(r); !errors.Is(o.err, err) {
			w.failf("the function's error is %q, %v", o.Value, o.err)
		}
		if n == 0 {
			b.do(r)
		}
	}
	a.close()
	b.close()
	patience := time.NewTimer(time.Second + w.opts.Patience)
	defer patience.Stop()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		keys, leases := w.keys(""), w.alive()
		if len(keys) == 0 && len(leases) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-patience.C:
			for key := range keys {
				w.failf("%d keys are left, %q among them, and %d leases", len(keys), key, len(leases))
			}
			w.failf("%d leases are left, %x among them", len(leases), int64(leases[0]))
		case <-w.ctx.Done():
			w.failf("waiting for keys and leases to go: %w", context.Cause(w.ctx))
		}
	}
}

// alive returns the leases that were granted and still live.
func (w *world) alive() (left []clientv3.LeaseID) {
	ctx, cancel := w.soon()
	defer cancel()
	for _, id := range w.leases() {
		resp, err := w.etcd.TimeToLive(ctx, id)
		if err != nil {
			w.failf("etcd cannot be asked for a lease: %w", err)
		}
		if resp.TTL > 0 {
			left = append(left, id)
		}
	}
	return left
}
