package backend

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// Operate runs fn with a session of the operator's in the namespace of the run. Then it stops all
// servers, closes the session and removes all keys of the namespace. ctx is that of NewFleet; if it
// has ended, its cause is returned in place of the errors that follow from it.
func (f *Fleet) Operate(ctx context.Context, at program.Place, ttl time.Duration, fn func(*concurrency.Session) error) error {
	err := f.operate(ctx, at, ttl, fn)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (f *Fleet) operate(ctx context.Context, at program.Place, ttl time.Duration, fn func(*concurrency.Session) error) error {
	etcd, err := at.Dial()
	if err != nil {
		return err
	}
	defer etcd.Close()
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(start, etcd, at.Namespace, &concurrency.SessionOptions{Owner: "operator", TTL: ttl})
	if err != nil {
		return err
	}
	err = fn(sess)
	f.Stop()
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, sess.Close(ending))
	_, bad := etcd.Delete(ending, sess.NamespacePrefix(), clientv3.WithPrefix())
	return errors.Join(err, bad)
}
