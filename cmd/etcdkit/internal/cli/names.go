package cli

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// withClient runs fn with a connection to etcd and without a session: for what needs read permission
// alone. fn's ctx is bounded by --command-timeout.
func (a *app) withClient(ctx context.Context, fn func(context.Context, *clientv3.Client) error) error {
	client, err := a.etcd.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout)
	defer cancel()
	return withReason(client, fn(ctx, client))
}

// namesBelow returns the names in the keys below root, sorted. It reads one key of each name: parse
// returns the name in a key and the range of all keys that have it; of foreign keys ok is false.
func (c *connection) namesBelow(ctx context.Context, kv clientv3.KV, root string, parse func(key string) (name, all string, ok bool)) ([]string, error) {
	names := []string{}
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, c.unreachable(err)
		}
		if len(resp.Kvs) == 0 {
			slices.Sort(names)
			return names, nil
		}
		key := string(resp.Kvs[0].Key)
		name, all, ok := parse(key)
		if !ok {
			from = key + "\x00"
			continue
		}
		names = append(names, name)
		from = clientv3.GetPrefixRangeEnd(all)
	}
}
