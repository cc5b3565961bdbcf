package mirror

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Span is a key, or the keys from one on to before another.
type Span struct {
	From string
	To   string // empty for one key
}

// Deletions watches the deletions of several keys from now on. deleted is called with each key, and
// closed when one of the watches has ended by itself, both by several goroutines. All watches exist when
// Deletions returns. They end with stop, which returns when none of those calls is under way.
//
// A deletion is only a sign that it is time to look. Those between an earlier read of the keys and the
// watch are not reported, so the caller reads the keys again.
func (s *Source) Deletions(ctx context.Context, spans []Span, deleted func(key string), closed func(error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	over := s.History().Over()
	var running sync.WaitGroup
	created := make(chan error, len(spans))
	for _, span := range spans {
		running.Go(func() {
			events, stop, err := s.watch(ctx, span.From, clientv3.WithFilterPut(), clientv3.WithRange(span.To))
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
					for _, ev := range resp.Events {
						deleted(string(ev.Kv.Key))
					}
				case <-over:
					closed(errTakenBack)
					return
				case <-ctx.Done():
					return
				}
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	for range spans {
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
