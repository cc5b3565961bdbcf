// Package idemtest tests the promises of etcdkit's idempotency store on a cluster of your own, with
// your options:
//
//	func TestIdempotencyOnOurCluster(t *testing.T) {
//		idemtest.Run(t, clientv3.Config{Endpoints: []string{"10.0.0.1:2379"}}, nil)
//	}
//
// Package idempotency/conformance documents the promises and what a test does to the cluster. At
// its end, no key and no lease is left there. Package idemtest builds and starts no etcd server.
package idemtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/conformance"
)

// Options configure the stores and sessions under test. nil means all defaults.
type Options struct {
	// Store are the options of the stores, such as Codec and Secret. Each test sets policies and
	// retention for its own requests. Defaults to those of idempotency.NewStore.
	Store *idempotency.Options
	// Session are the options of the sessions; Prefix and Owner are ignored. Defaults to those of
	// concurrency.NewSession.
	Session *concurrency.SessionOptions
	// Prefix is the prefix of all keys. Defaults to "/conformance/".
	Prefix string
	// Patience is at most how long a test waits for each expected event. Defaults to 30 seconds,
	// or twice the session's TTL if that is longer.
	Patience time.Duration
}

// Run tests all promises on a cluster, each in a parallel subtest with its name. Each client is
// created from the cluster's configuration: endpoints, TLS, user and password.
func Run(t *testing.T, cluster clientv3.Config, opts *Options) {
	t.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Patience <= 0 && o.Session != nil {
		o.Patience = max(30*time.Second, 2*o.Session.TTL)
	}
	conformance.Idempotency(t, cluster, Store(o), &conformance.Options{Prefix: o.Prefix, Patience: o.Patience})
}

// Store returns etcdkit's store as a conformance.Store. Use it to test single promises, also outside
// of a test (conformance.Promise), or to wrap the store. Copy its source to test another store.
func Store(o Options) conformance.Store { return store{o} }

type store struct{ opts Options }

func (s store) Open(ctx context.Context, client *clientv3.Client, prefix string) (conformance.Instance, error) {
	var so concurrency.SessionOptions
	if s.opts.Session != nil {
		so = *s.opts.Session
	}
	so.Prefix, so.Owner = strings.TrimSuffix(prefix, "/"), ""
	sess, err := concurrency.NewSession(ctx, client, "conformance", &so)
	if err != nil {
		return nil, err
	}
	st, err := idempotency.NewStore(sess, "store", s.opts.Store)
	if err != nil {
		return nil, errors.Join(err, sess.Close(ctx))
	}
	return &instance{sess, st}, nil
}

// Kind returns the kind of an error: one for each decision that a caller can make.
func (store) Kind(err error) conformance.Kind {
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			return k.kind
		}
	}
	return conformance.Other
}

var kinds = []struct {
	is   error
	kind conformance.Kind
}{
	{idempotency.ErrInProgress, conformance.InProgress},
	{idempotency.ErrMismatch, conformance.Mismatch},
	{idempotency.ErrUnknown, conformance.Unknown},
	{idempotency.ErrFailed, conformance.Failed},
	{idempotency.ErrOmitted, conformance.Omitted},
	{idempotency.ErrFenced, conformance.Fenced},
	{idempotency.ErrConflict, conformance.Conflict},
	{idempotency.ErrNotRecorded, conformance.NotRecorded},
	{idempotency.ErrInvalid, conformance.Invalid},
}

// instance is a session with a store on it.
type instance struct {
	sess  *concurrency.Session
	store *idempotency.Store
}

func (in *instance) Do(ctx context.Context, r conformance.Request) (conformance.Answer, error) {
	opts := []idempotency.Option{idempotency.Retain(r.Retain)}
	if r.Wait != nil {
		opts = append(opts, idempotency.Wait(*r.Wait))
	}
	if r.Refuse {
		opts = append(opts, idempotency.OnLost(idempotency.Refuse))
	}
	if r.Remember {
		opts = append(opts, idempotency.OnError(func(error) idempotency.Action { return idempotency.Remember }))
	}
	key := idempotency.Key{Scope: r.Scope, Op: r.Op, ID: r.ID}
	res, err := idempotency.Do(ctx, in.store, key, r.Payload, func(ctx context.Context, a *idempotency.Attempt) (string, error) {
		return r.Func(ctx, attempt{a})
	}, opts...)
	return conformance.Answer{Value: res.Value, Replayed: res.Replayed, Attempt: res.Attempt, Token: res.Token}, err
}

func (in *instance) Expire(ctx context.Context, by *clientv3.Client) error {
	_, err := by.Revoke(ctx, in.sess.Lease())
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil // it has expired already
	}
	return err
}

func (in *instance) Close(ctx context.Context) error { return in.sess.Close(ctx) }

// handle is Attempt, under a name that differs from that of its method.
type handle = idempotency.Attempt

// attempt is an Attempt with Step as a method.
type attempt struct{ *handle }

func (a attempt) Step(name string, fn func(context.Context) (string, error)) (string, error) {
	return idempotency.Step(a.handle, name, fn)
}
