package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		require.Empty(t, f.working())
		require.Empty(t, f.Keys("effect"))
	}
}

// A []byte is returned as encoding/json would return it, however its JSON is written.
func TestBytesAsJSON(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	for i, text := range []string{`"AAEC"`, `""`, `null`, `"AA\u0045C"`, ` "AAEC" `, `"AA\nEC"`, "\"AA\nEC\"", `"AA"`, `"`, ``, `[0,1]`, `{}`, `"AAEC`, `"AA-_"`, `"AAECAw=="`} {
		k := key(fmt.Sprint(i))
		require.NoError(t, begin(t, a, k).Commit(ctxT(t), []byte(text)))
		var want []byte
		bad := json.Unmarshal([]byte(text), &want)
		res, err := idempotency.Do(ctxT(t), a.Store, k, "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return nil, errors.New("runs again") })
		if bad != nil {
			require.ErrorIs(t, err, idempotency.ErrUnreadable, "%q", text)
			continue
		}
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, res.Value, "%q", text)
	}
}
