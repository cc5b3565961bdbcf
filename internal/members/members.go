package members

import (
	"context"
	"reflect"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is how one session calls etcd. It is safe for concurrent use.
type Etcd struct {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher
	// Leases are the calls of leases as they are, with no repetition by etcd's client.
	Leases etcdserverpb.LeaseClient
	// Client is the caller's client.
	Client *clientv3.Client
	// Wrapped reports whether the program has put another KV, Lease or Watcher into its client.
	Wrapped bool

	dials *dials
	calls *calls // nil if all goes by the caller's client at all times
}

// Of returns how a session calls etcd by a client. Close ends it.
//
// If the program has put another KV, Lease or Watcher into its client, such as a namespace's, all goes by
// that: connections beside it would leave out what it does. With one endpoint there is no other member.
//
// While loggingIn returns true, no call counts as late: a login takes each member a part of a second of processor
// time, and a fleet that logs in at once keeps all of them busy. It may be nil.
func Of(client *clientv3.Client, log *zap.Logger, loggingIn func() bool) *Etcd {
	e := &Etcd{KV: client.KV, Lease: client.Lease, Watcher: client.Watcher, Client: client, Wrapped: wrapped(client), dials: &dials{}}
	if client.ActiveConnection() != nil {
		e.Leases = etcdserverpb.NewLeaseClient(client.ActiveConnection())
	}
	switch {
	case len(client.Endpoints()) < 2:
		return e
	case e.Wrapped || client.ActiveConnection() == nil:
		log.Info("the client's KV, Lease or Watcher is not etcd's own: a member of etcd that hangs is not avoided")
		return e
	}
	e.calls = newCalls(client, log)
	if loggingIn != nil {
		e.calls.loggingIn = loggingIn
	}
	e.KV = clientv3.NewKVFromKVClient(e.calls.kv(clientv3.RetryKVClient(client)), client)
	e.Leases = e.calls.lease(e.Leases)
	e.Lease = clientv3.NewLeaseFromLeaseClient(e.calls.lease(clientv3.RetryLeaseClient(client)), client, 0)
	e.Watcher = clientv3.NewWatchFromWatchClient(e.calls.watch(etcdserverpb.NewWatchClient(client.ActiveConnection())), client)
	return e
}

// wrapped reports whether parts of a client are others than those that clientv3.New makes.
func wrapped(client *clientv3.Client) bool {
	same := func(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
	return !same(client.KV, clientv3.NewKVFromKVClient(nil, nil)) || !same(client.Lease, clientv3.NewLeaseFromLeaseClient(nil, nil, 0)) ||
		!same(client.Watcher, clientv3.NewWatchFromWatchClient(nil, nil))
}

// Await says that a caller waits for what a watch brings, until done is called: then a watch that has been
// silent is asked for its progress.
func (e *Etcd) Await() (done func()) {
	if e.calls == nil {
		return func() {}
	}
	return e.calls.silence.await()
}

// Ctx returns the context of the caller's client, which ends when that is closed.
func (e *Etcd) Ctx() context.Context { return e.Client.Ctx() }

// closesFor bounds the wait for Close of etcd's own Lease and Watcher.
const closesFor = time.Second

// Close closes the connections of the session. Calls afterwards go by the caller's client. Close of etcd's Watcher can wait for
// ever if a watch is refused while its stream ends, as with a token that has expired. After a second Close leaves it alone: its
// goroutines stay until the process ends.
func (e *Etcd) Close() {
	if e.calls == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = e.Lease.Close()
		_ = e.Watcher.Close()
	}()
	t := time.NewTimer(closesFor)
	defer t.Stop()
	select {
	case <-closed:
	case <-t.C:
	}
	e.calls.close()
}
