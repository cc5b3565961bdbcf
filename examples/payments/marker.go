package main

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// marker is the way that is recommended most: a marker in the store says that the request
// is being worked on, or what came of it. It is set if it is absent, and taken away if the work
// fails. One lifetime bounds both, usually two minutes (settings.Lifetime here), and nobody's
// name stands in it. So it ends under a payment that is slower, and then
// who was slower overwrites or removes what is another's. And if the store cannot be
// reached after the charge, that looks like work that has failed.
func (s *server) marker(ctx context.Context, x attempt) (paid string, err error) {
	key := s.markerKey(x.key)
	lease, err := s.client.Grant(ctx, int64(s.Lifetime.Seconds()))
	if err != nil {
		return "", err
	}
	resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "IN PROGRESS", clientv3.WithLease(lease.ID))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return "", err
	}
	if !resp.Succeeded {
		if done, ok := strings.CutPrefix(string(resp.Responses[0].GetResponseRange().Kvs[0].Value), "DONE "); ok {
			return done, nil
		}
		return "", errBusy
	}
	if paid, err = s.markedWork(ctx, x, key); err != nil {
		_, gone := s.client.Delete(ctx, key) // the work has failed: it may be repeated
		err = errors.Join(err, gone)
	}
	return paid, err
}

func (s *server) markedWork(ctx context.Context, x attempt, key string) (string, error) {
	o, err := s.load(ctx, x.order)
	if err != nil {
		return "", err
	}
	paid, err := s.work(ctx, x, o)
	if err != nil {
		return "", err
	}
	lease, err := s.client.Grant(ctx, int64(s.Lifetime.Seconds()))
	if err == nil && x.harmful {
		err = errors.New("the store cannot be reached")
	}
	if err != nil {
		return "", err
	}
	_, err = s.client.Put(ctx, key, "DONE "+paid, clientv3.WithLease(lease.ID))
	return paid, err
}

func (s settings) markerKey(key string) string { return s.space() + "marker/" + key }

// harmHeader has the store fail after the charge.
const harmHeader = "Demo-Store-Fails"
