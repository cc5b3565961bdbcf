package mirror

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Deletions watches the deletions of several keys from now on. deleted is called with each key, and
// closed when one of the watches has ended by itself, both by several goroutines. All watches exist when
// Deletions returns. They end with stop, which returns when none of those calls is under way.
//
// A deletion is only a sign that it is time to look. Those between an earlier read of the keys and the
// watch are not reported, so the caller reads the keys again.
func (s *Source) Deletions(ctx context.Context, keys []string, deleted func(key string), closed func(error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	created := make(chan error, len(keys))
	for _, key := range keys {
		running.Go(func() {
			events, stop, err := s.watch(ctx, key, clientv3.WithFilterPut())
			if created <- err; err != nil {
				return
			}
			defer stop()
			for {
				select {
				case resp, ok := <-events:
					if err := ended(resp, ok); err != nil {
						if ctx.Err() == nil {
							closed(err)
						}
						return
					}
					if len(resp.Events) > 0 {
						deleted(key)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	for range keys {
		if e := <-created; e != nil {
			err = e
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
