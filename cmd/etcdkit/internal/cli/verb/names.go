package verb

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// NamesBelow returns the names in the keys below root, sorted. It reads one key of each name, and the next ones with
// it, since most names have few keys: parse returns the name in a key and the range of all keys that have it; of
// foreign keys ok is false. It returns an error of etcd, and of ctx.
func (c *Connection) NamesBelow(
	ctx context.Context, kv clientv3.KV, root string, parse func(key string) (name, all string, ok bool),
) ([]string, error) {
	names := []string{}
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(namesAtOnce), clientv3.WithKeysOnly())
		if err != nil {
			return nil, c.Unreachable(err)
		}
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			if key < from {
				continue // of the name before
			}
			from = key + "\x00"
			if name, all, ok := parse(key); ok {
				names = append(names, name)
				from = clientv3.GetPrefixRangeEnd(all)
			}
		}
		if !resp.More {
			slices.Sort(names)
			return names, nil
		}
	}
}

// namesAtOnce is how many keys are read for one name and those after it.
const namesAtOnce = 500
