package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// putOff puts the record of an attempt by hand, as it is, without a lease. It returns what ends the lease that it was on.
func (f fixture) putOff(at *idempotency.Attempt) (revoke func()) {
	f.T.Helper()
	name := f.Keys("/" + string(at.Ref()))[0]
	resp, err := f.Client().Get(ctxT(f.T), name)
	require.NoError(f.T, err)
	_, err = f.Client().Put(ctxT(f.T), name, string(resp.Kvs[0].Value))
	require.NoError(f.T, err)
	return func() { require.NoError(f.T, f.RevokeLease(ctxT(f.T), clientv3.LeaseID(resp.Kvs[0].Lease))) }
}

// A386: etcd answers a recovery point or a note that the lease of the attempt's record does not exist. The error matched none
// of those that Step and SetNote name, and the attempt continued for as long as a TTL. The same goes for what settles a doubt
// about the recovery point before.
func TestWriteWithoutTheLeaseOfTheRecord(t *testing.T) {
	t.Parallel()
	step := func(at *idempotency.Attempt) error {
		_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	for name, tt := range map[string]struct {
		doubt bool
		write func(at *idempotency.Attempt) error
	}{
		"note":               {false, func(at *idempotency.Attempt) error { return at.SetNote("order 7") }},
		"step":               {false, step},
		"step after a doubt": {true, step},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a := f.instance(nil, nil)
			at := begin(t, a, key("1"))
			revoke := f.putOff(at)
			if tt.doubt { // the first put finds the record put by hand, the next one is not answered, and one is refused
				for _, fault := range []embedtest.Fault{{Do: embedtest.Pass}, {Do: embedtest.FailWith}, {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace}} {
					fault.Method, fault.Match = "Txn", isPutAgain
					a.client.Inject(fault)
				}
				require.ErrorIs(t, rpctypes.Error(step(at)), rpctypes.ErrNoSpace)
			}
			revoke()
			err := tt.write(at)
			require.ErrorIs(t, err, idempotency.ErrLost)
			require.ErrorContains(t, err, "the lease of its record does not exist any more")
			require.ErrorIs(t, at.Err(), idempotency.ErrLost)
			closed(t, at.Context().Done(), "its context ends")
		})
	}
}

// A386: a try to commit is not answered, etcd rejects what is attached to the next one, and answers the put that keeps the
// first from taking effect that the lease of the record does not exist. The attempt continued, although another may begin.
func TestRejectedWithoutTheLeaseOfTheRecord(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	at := begin(t, a, key("1"))
	at.Attach(nil, clientv3.OpPut(f.Root+"effect", ""))
	f.putOff(at)()
	for _, fault := range []embedtest.Fault{{Do: embedtest.Pass}, {Do: embedtest.FailWith}, {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCDuplicateKey}} {
		fault.Method, fault.Match = "Txn", isCommit
		a.client.Inject(fault)
	}
	require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrFenced)
	require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrFenced, "it does not continue")
}
