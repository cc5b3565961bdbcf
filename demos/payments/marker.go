package main

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// marker is the way that is recommended most. A key in the store marks a request as in progress,
// and later has its result. The key is created if it is absent, and deleted if the work fails. It
// has one lifetime for both states, usually two minutes (settings.Lifetime here), and no owner. So
// the key expires during a slower payment, whose process then overwrites or deletes the key of
// another one. And if the store is unavailable after the charge, that looks like failed work.
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
		_, bad := s.client.Delete(ctx, key) // the work has failed: it may be repeated
		err = errors.Join(err, bad)
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
	if err == nil && x.storeFails {
		err = errors.New("the store is unavailable")
	}
	if err != nil {
		return "", err
	}
	_, err = s.client.Put(ctx, key, "DONE "+paid, clientv3.WithLease(lease.ID))
	return paid, err
}

func (s settings) markerKey(key string) string { return s.space() + "marker/" + key }

// failStoreHeader makes the store fail after the charge.
const failStoreHeader = "Demo-Store-Fails"
