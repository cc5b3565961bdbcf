package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// While a Secret is changed, processes before and after each step run at once: what one has
// recorded, begun or lost is the same request to the other, and another payload is refused.
func TestSecretRotation(t *testing.T) {
	t.Parallel()
	one, two := []byte("one"), []byte("two")
	type secrets struct {
		secret []byte
		old    [][]byte
	}
	for name, steps := range map[string][]secrets{
		"from one to another": {{secret: one}, {one, [][]byte{two}}, {two, [][]byte{one}}},
		"from none to one":    {{}, {nil, [][]byte{two}}, {two, [][]byte{idempotency.NoSecret}}},
		"from one to none":    {{secret: one}, {one, [][]byte{idempotency.NoSecret}}, {nil, [][]byte{one}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range len(steps) - 1 {
				before, after := steps[n], steps[n+1]
				for _, pair := range [][2]secrets{{before, after}, {after, before}} {
					f := shared(t)
					a := f.instance(nil, &idempotency.Options{Secret: pair[0].secret, OldSecrets: pair[0].old})
					b := f.instance(nil, &idempotency.Options{Secret: pair[1].secret, OldSecrets: pair[1].old})
					host := idempotency.AlsoCompare("a.example")
					refused := func(in instance, id string, finished bool) {
						t.Helper()
						for payload, also := range map[string]string{"another": "a.example", "payload": "b.example"} {
							var mismatch *idempotency.MismatchError
							_, _, err := in.Begin(ctxT(t), key(id), payload, idempotency.AlsoCompare(also), idempotency.Wait(0))
							require.ErrorAs(t, err, &mismatch, "%q, %q", payload, also)
							require.Equal(t, finished, mismatch.Finished)
						}
					}
					at := begin(t, a, key("done"), host)
					_, _, err := b.Begin(ctxT(t), key("done"), "payload", host, idempotency.Wait(0))
					require.ErrorIs(t, err, idempotency.ErrInProgress)
					refused(b, "done", false)
					require.NoError(t, at.Commit(ctxT(t), []byte("x")))
					refused(b, "done", true)
					for range 2 { // from etcd and from the cache
						require.Equal(t, "x", string(replayed(t, b, key("done")).Value))
						refused(b, "done", true)
					}

					begin(t, a, key("lost"), host)
					a.crash(t, f)
					refused(b, "lost", false)
					at = begin(t, b, key("lost")) // keeps what the first has said with AlsoCompare
					require.Equal(t, 2, at.Attempt())
					c := f.instance(nil, &idempotency.Options{Secret: pair[0].secret, OldSecrets: pair[0].old})
					refused(c, "lost", false)
					require.NoError(t, at.Commit(ctxT(t), []byte("y")))
					refused(c, "lost", true)
					require.Equal(t, "y", string(replayed(t, c, key("lost")).Value))
				}
			}
			// The step that would skip one is the one that refuses duplicates.
			first, last := steps[0], steps[len(steps)-1]
			f := shared(t)
			a := f.instance(nil, &idempotency.Options{Secret: first.secret})
			b := f.instance(nil, &idempotency.Options{Secret: last.secret})
			require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
			_, _, err := b.Begin(ctxT(t), key("1"), "payload")
			require.ErrorIs(t, err, idempotency.ErrMismatch)
		})
	}
}

// An entry that is empty by accident, such as a variable that is not set, is refused: it would
// leave out the secret that was meant. Secrets are the store's own, and are not shown.
func TestOldSecrets(t *testing.T) {
	t.Parallel()
	f := shared(t)
	secret, old := []byte("secret"), []byte("old")
	a := f.instance(nil, &idempotency.Options{Secret: secret, OldSecrets: [][]byte{old}})
	for _, bad := range []*idempotency.Options{
		{Secret: secret, OldSecrets: [][]byte{nil}},
		{Secret: secret, OldSecrets: [][]byte{old, {}}},
		{Secret: idempotency.NoSecret},
	} {
		_, err := idempotency.NewStore(a.sess, "other", bad)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
	}
	require.Nil(t, a.Options().Secret)
	require.Nil(t, a.Options().OldSecrets)
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
	clear(secret) // as programs do that keep secrets no longer than they have to
	clear(old)
	b := f.instance(nil, &idempotency.Options{Secret: []byte("old"), OldSecrets: [][]byte{[]byte("secret")}})
	require.NoError(t, begin(t, b, key("2")).Commit(ctxT(t), nil))
	replayed(t, b, key("1"))
	replayed(t, a, key("2"))
	require.NoError(t, begin(t, a, key("3")).Commit(ctxT(t), nil))
	replayed(t, b, key("3"))
}

// A621: two processes with different secrets refuse each other's requests. The error said that the payload differs, and
// nothing led to the deployment.
func TestMismatchNamesTheSecret(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{Secret: []byte("another, of one process")})
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
	_, _, err := b.Begin(ctxT(t), key("1"), "payload")
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.ErrorContains(t, err, "another Options.Secret")
	// Where the payloads are known to be equal, so are the secrets.
	require.NoError(t, begin(t, a, key("2"), idempotency.AlsoCompare("x")).Commit(ctxT(t), nil))
	_, _, err = a.Begin(ctxT(t), key("2"), "payload", idempotency.AlsoCompare("y"))
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.NotContains(t, err.Error(), "Secret")
}
