package mirror

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Listen calls received with the events below prefix from now on, until ctx ends. It calls up each
// time that the watch is established: events before that are not reported. It is for facts that
// never change back, where a missed one costs a read.
func (s *Source) Listen(ctx context.Context, prefix string, up func(), received func(events []*clientv3.Event), opts ...clientv3.OpOption) {
	s.repeat(ctx, prefix, s.deniedPause(), func(pause *commit.Backoff) error {
		over := s.History().Over()
		events, stop, err := s.watch(ctx, prefix, append(opts, clientv3.WithPrefix())...)
		if err != nil {
			return err
		}
		defer stop()
		up()
		for {
			select {
			case resp, ok := <-events:
				if err := ended(resp, ok); err != nil {
					return err
				}
				pause.Reset()
				if len(resp.Events) > 0 {
					received(resp.Events)
				}
			case <-over:
				return errTakenBack
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
