package cli

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// withClient runs fn with a connection to etcd and without a session: for what needs read permission
// alone. fn's ctx ends if etcd has not answered for --command-timeout.
func (a *app) withClient(ctx context.Context, fn func(context.Context, *clientv3.Client) error) error {
	client, err := a.etcd.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, answered, cancel := a.reading(ctx)
	defer cancel()
	client.KV = answering{client.KV, answered}
	return withReason(client, because(ctx, fn(ctx, client)))
}

// reading is patience for reads of many keys. answered is called with the number of keys in each answer; a terminal
// shows their sum.
func (a *app) reading(ctx context.Context) (_ context.Context, answered func(keys int), cancel func()) {
	ctx, alive, stop := a.patience(ctx)
	p, read := a.progress(), 0
	answered = func(keys int) {
		alive()
		read += keys
		p.set("%d keys read", read)
	}
	return ctx, answered, func() { stop(); p.end() }
}

// answering is an etcd that reports each answer to a read.
type answering struct {
	clientv3.KV
	answered func(keys int)
}

func (k answering) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.KV.Get(ctx, key, opts...)
	if err == nil {
		k.answered(len(resp.Kvs))
	}
	return resp, err
}

// queues reads the queues of a session's namespace, and ends if etcd has not answered for --command-timeout.
func (a *app) queues(ctx context.Context, sess *concurrency.Session, prefixes ...string) (*fleet.State, error) {
	ctx, answered, cancel := a.reading(ctx)
	defer cancel()
	s := engine.Of(sess)
	if prefixes == nil {
		prefixes = fleet.Queues(s.Space())
	}
	state, err := fleet.Read(ctx, answering{s.KV(), answered}, s.Space(), time.Now(), prefixes...)
	return state, because(ctx, err)
}

// namesBelow returns the names in the keys below root, sorted. It reads one key of each name, and the next ones with
// it, since most names have few keys: parse returns the name in a key and the range of all keys that have it; of
// foreign keys ok is false.
func (c *connection) namesBelow(ctx context.Context, kv clientv3.KV, root string, parse func(key string) (name, all string, ok bool)) ([]string, error) {
	names := []string{}
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(namesAtOnce), clientv3.WithKeysOnly())
		if err != nil {
			return nil, c.unreachable(err)
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
