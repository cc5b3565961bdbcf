package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pace is the interval between two looks at state that changes without a signal.
const pace = 50 * time.Millisecond

// kept is the Retain of the promise about retention.
const kept = 2 * time.Second

func retention(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	var done atomic.Int64 // when the function has returned; the outcome comes later
	start := time.Now()
	k := f.work()
	k.then = func(context.Context, Attempt) error {
		done.Store(int64(time.Since(start)))
		return nil
	}
	r := k.request()
	r.Retain = kept
	first := f.wantAnswer(a.do(r))
	b.wantReplay(r, first)

	// The outcome exists as long as another payload is refused. (A replay may come from the
	// memory of a process.)
	next := f.work()
	var gone time.Duration
	next.then = func(context.Context, Attempt) error {
		gone = time.Since(start) - time.Duration(done.Load())
		return nil
	}
	r.Payload, r.Func = "another payload", next.run
	patience := time.NewTimer(kept + f.opts.Patience)
	defer patience.Stop()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		o := c.do(r)
		if o.err == nil && !o.Replayed {
			break
		}
		f.wantKind(o, Mismatch)
		select {
		case <-tick.C:
		case <-patience.C:
			f.failf("an outcome still exists %v after the end of its retention of %v", f.opts.Patience, kept)
		case <-f.ctx.Done():
			f.failf("wait for the end of an outcome: %w", context.Cause(f.ctx))
		}
	}
	next.wantRuns(1)
	if gone < kept {
		f.failf("an outcome was kept for %v, want %v", gone, kept)
	}
	k.wantRuns(1)
}

func nothingIsLeft(f *fixture) {
	a, b := f.open(), f.open()
	broken := errors.New("broken")
	for n, err := range []error{nil, broken, broken} {
		k := f.work()
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
			f.failf("want the error of the function; got %q, %v", o.Value, o.err)
		}
		if n == 0 {
			b.do(r)
		}
	}
	a.close()
	b.close()
	patience := time.NewTimer(time.Second + f.opts.Patience)
	defer patience.Stop()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		keys, leases := f.keys(), f.liveLeases()
		if len(keys) == 0 && len(leases) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-patience.C:
			for key := range keys {
				f.failf("%d keys are left, %q among them, and %d leases", len(keys), key, len(leases))
			}
			f.failf("%d leases are left, %x among them", len(leases), int64(leases[0]))
		case <-f.ctx.Done():
			f.failf("wait for the end of keys and leases: %w", context.Cause(f.ctx))
		}
	}
}

// liveLeases returns the leases that were granted and have not expired.
func (f *fixture) liveLeases() (left []clientv3.LeaseID) {
	ctx, cancel := f.bounded()
	defer cancel()
	for _, id := range f.leases() {
		resp, err := f.etcd.TimeToLive(ctx, id)
		if err != nil {
			f.failf("etcd does not return a lease: %w", err)
		}
		if resp.TTL > 0 {
			left = append(left, id)
		}
	}
	return left
}
