package doctor

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Foreign looks for keys of a namespace that are not etcdkit's, outside of queues and jobs. It returns how many keys it
// has read, also if an error has come.
func Foreign(ctx context.Context, kv clientv3.KV, space keyspace.Space) (found []Finding, read int, err error) {
	const shown, page = 5, 1000
	var names []string
	foreign := 0
	for from, end := space.Root(), clientv3.GetPrefixRangeEnd(space.Root()); ; {
		resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithKeysOnly())
		if err != nil {
			return nil, read, err
		}
		for _, kv := range resp.Kvs {
			read++
			from = string(kv.Key) + "\x00"
			if !keyspace.Foreign(space, string(kv.Key)) {
				continue
			}
			if foreign++; foreign <= shown {
				names = append(names, fmt.Sprintf("%q", strings.TrimPrefix(string(kv.Key), space.Root())))
			}
		}
		if !resp.More {
			break
		}
	}
	switch {
	case foreign == 0:
		return One(OK, "", "none outside of queues and jobs is foreign"), read, nil
	case foreign > shown:
		names = append(names, "…")
	}
	return One(Warn, "Such a key is ignored, and never expires: find the program that writes it, and delete it with etcdctl.", "foreign keys (%d): %s", foreign, strings.Join(names, ", ")), read, nil
}
