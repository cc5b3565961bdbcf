package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A41: the record of an attempt in progress is deleted by hand, and its claim exists. A waiting call
// continues to wait for the end of the claim, on its one watch. It does not read again and again
// because there is no record.
func TestWaiterOfAClaimWithoutARecord(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"deleted while it waits": false, "deleted before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t)
			ctx := ctxT(t)
			works, waits := f.instance(nil, nil), f.instance(nil, nil)
			a := begin(t, works, key("k"))
			record := f.Keys("/idem/")[0]
			deleted := func() {
				_, err := f.Client().Delete(ctx, record)
				require.NoError(t, err)
				require.Len(t, f.Keys("/claim"), 1)
			}
			if begun {
				deleted()
			}
			waits.client.ResetRequests()
			type end struct {
				a   *idempotency.Attempt
				err error
			}
			ends := make(chan end, 1)
			go func() {
				a, _, err := waits.Begin(ctx, key("k"), "payload")
				ends <- end{a, err}
			}()
			require.Eventually(t, func() bool { return waits.client.Requests()["Watch.Send"] > 0 }, soon, 5*time.Millisecond)
			if !begun {
				deleted()
			}
			time.Sleep(500 * time.Millisecond) // what is counted is how often it asks in that time
			asked := waits.client.Requests()
			require.Less(t, asked["Range"]+asked["Txn"], 10, "%v", asked)
			require.LessOrEqual(t, asked["Watch.Send"], 2, "its own, and that of its session: %v", asked)
			t.Log(asked)
			require.Empty(t, ends, "it waits")

			// The attempt cannot be recorded, and its claim goes. Then the key is new.
			require.ErrorIs(t, a.Commit(ctx, []byte(`"result"`)), idempotency.ErrFenced)
			next := got(t, ends, "the waiter continues")
			require.NoError(t, next.err)
			require.NoError(t, next.a.Commit(ctx, []byte(`"other"`)))
			require.Equal(t, `"other"`, string(replayed(t, works, key("k")).Value))
		})
	}
}
