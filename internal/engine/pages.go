package engine

import (
	"context"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Pages yields the keys of a range, which are read so many at once.
func Pages(ctx context.Context, s *Session, prefix string, page int64, opts ...clientv3.OpOption) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		from := prefix
		opts := append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page))
		for {
			var resp *clientv3.GetResponse
			err := s.Do(ctx, func(ctx context.Context) (err error) {
				resp, err = s.Read(ctx, from, opts...)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range resp.Kvs {
				if !yield(kv, nil) {
					return
				}
			}
			if !resp.More {
				return
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
}
