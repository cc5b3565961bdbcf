package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A failure is recorded even if a condition given to Attach is not met, without what was given.
// Otherwise the attempt would continue, and no function would run.
func TestConflictOfAFailure(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	never := clientv3.Compare(clientv3.CreateRevision(f.Root+"nothing"), ">", 0)
	remember := idempotency.OnError(func(error) idempotency.Action { return idempotency.Remember })
	failure := errors.New("declined")
	for name, fail := range map[string]func() error{
		"error": func() error { return failure },
		"panic": func() error { panic(failure) },
	} {
		do := func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = failure
				}
			}()
			_, err = idempotency.Do(ctxT(t), a.Store, key(name), nil, func(_ context.Context, at *idempotency.Attempt) (int, error) {
				at.Attach([]clientv3.Cmp{never}, clientv3.OpPut(f.Root+"effect", name))
				return 0, fail()
			}, remember, idempotency.OnPanic(idempotency.Remember), idempotency.Wait(0))
			return err
		}
		require.ErrorIs(t, do(), failure)
		require.ErrorIs(t, do(), idempotency.ErrFailed)
		require.Empty(t, f.Keys("/claim"))
		require.Empty(t, f.Keys("effect"))
	}
}
