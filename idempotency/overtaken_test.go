package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// I36: while a claim is in flight, another process claims the key, and its attempt ends. There is no
// claim when the first one arrives, but the record is no longer as it was read. The Txn decides: a recorded outcome is replayed, a lost attempt counted.
func TestClaimOvertaken(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"a first attempt": 0, "a later attempt": 1} {
		for _, recorded := range []bool{true, false} {
			end := map[bool]string{true: "recorded", false: "lost"}[recorded]
			t.Run(name+", the other is "+end, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				a, b := f.instance(nil, nil), f.instance(nil, nil)
				if before > 0 {
					require.NoError(t, begin(t, a, key("1")).Abandon(ctxT(t)))
				}
				inj := b.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldRequest})
				type answer struct {
					attempt *idempotency.Attempt
					rec     *idempotency.Outcome
					err     error
				}
				done := make(chan answer, 1)
				go func() {
					at, rec, err := b.Begin(ctxT(t), key("1"), "payload")
					done <- answer{at, rec, err}
				}()
				require.NoError(t, inj.WaitHit(ctxT(t)))
				other := begin(t, a, key("1"))
				require.Equal(t, before+1, other.Attempt())
				if recorded {
					require.NoError(t, other.Commit(ctxT(t), []byte("a")))
				} else {
					require.NoError(t, other.Abandon(ctxT(t)))
				}
				require.Empty(t, f.working())
				require.NoError(t, inj.Release())
				x := got(t, done, "it returns")
				require.NoError(t, x.err)
				if recorded {
					require.Nil(t, x.attempt, "another attempt after a recorded outcome")
					require.Equal(t, "a", string(x.rec.Value))
					return
				}
				require.NotNil(t, x.attempt)
				require.Equal(t, before+2, x.attempt.Attempt())
				require.NoError(t, x.attempt.Commit(ctxT(t), nil))
			})
		}
	}
}
