package mirror

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Listen calls received with the events below prefix from now on, until ctx ends. It calls up each
// time that the watch is established: events before that are not reported. It is for facts that
// never change back, where a missed one costs a read.
func (s *Source) Listen(ctx context.Context, prefix string, up func(), received func(events []*clientv3.Event)) {
	f := follower{source: s, prefix: prefix}
	var pause commit.Backoff
	for ctx.Err() == nil {
		err := f.listen(ctx, up, received, &pause)
		if ctx.Err() != nil {
			return
		}
		s.Log.Debug("watch ended; another is created", zap.String("prefix", prefix), zap.Error(err))
		s.stream.Add(1)
		if pause.Wait(ctx, nil) != nil {
			return
		}
	}
}

func (f *follower) listen(ctx context.Context, up func(), received func([]*clientv3.Event), pause *commit.Backoff) error {
	events, stop, err := f.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	up()
	for {
		select {
		case resp, ok := <-events:
			if !ok {
				return errors.New("the watch was closed")
			}
			if err := resp.Err(); err != nil {
				return err
			}
			pause.Reset()
			if len(resp.Events) > 0 {
				received(resp.Events)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
