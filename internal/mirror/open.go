package mirror

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Opening is the watch of a range whose owner lists the range itself.
type Opening struct {
	Prefix string
	From   int64 // the first revision to report
	// Probe is how often etcd is asked up to which revision the watch has reported all events. The
	// watch ends if it has not answered for three times as long.
	Probe time.Duration
	// Received is called with each response. One without events is such an answer.
	Received func(clientv3.WatchResponse) error
	// Tick is called once per Period. If it or Received returns an error, the watch ends.
	Tick   func() error
	Period time.Duration
}

// ErrSilent ends a watch that has not answered three probes. etcd's gRPC proxy answers none.
var ErrSilent = errors.New("the watch does not answer")

// Open creates a watch and returns why it has ended. Its functions are called by this goroutine.
//
// etcd answers no probe while the first revision of a watch is still to come (progressIfSync of its
// watchable store), which in a quiet etcd can take hours. So the watch begins with the revision before.
func (s *Source) Open(ctx context.Context, o Opening) error {
	marked := s.mark(ctx)
	events, stop, err := s.watch(ctx, o.Prefix, clientv3.WithPrefix(), clientv3.WithRev(max(o.From-1, 1)), clientv3.WithProgressNotify(), clientv3.WithFragment())
	if err != nil {
		return err
	}
	defer stop()
	probes, ticks := time.NewTicker(o.Probe), time.NewTicker(o.Period)
	defer probes.Stop()
	defer ticks.Stop()
	answered := time.Now()
	for {
		select {
		case resp, ok := <-events:
			if err := ended(resp, ok); err != nil {
				return err
			}
			answered = time.Now()
			if old := func(ev *clientv3.Event) bool { return ev.Kv.ModRevision < o.From }; slices.ContainsFunc(resp.Events, old) {
				if resp.Events = slices.DeleteFunc(resp.Events, old); len(resp.Events) == 0 {
					continue // it answers no probe
				}
			}
			err = o.Received(resp)
		case <-probes.C:
			if time.Since(answered) > 3*o.Probe {
				return ErrSilent
			}
			err = s.progress(marked, o.Probe)
		case <-ticks.C:
			err = o.Tick()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// progress asks up to which revision the watches of a stream have reported all events. A stream that
// is not connected takes the request later, or not at all: its answers decide.
func (s *Source) progress(ctx context.Context, within time.Duration) error {
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := s.Watcher.RequestProgress(call)
	if call.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Repeat calls watch, which returns why its watch has ended, again and again until ctx ends.
func (s *Source) Repeat(ctx context.Context, prefix string, watch func(*commit.Backoff) error) {
	s.repeat(ctx, prefix, s.deniedPause(), watch)
}
