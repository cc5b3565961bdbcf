package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The record of a lost run stays until a process has reported it, however few records are kept or however old it is, as long as it is one of
// the last twenty. The next run that ended removed it while the report waited for its turn: the fleet never reported the
// loss (A444 in internal/proof/tested-failures.md).
func TestLossIsKeptUntilItIsReported(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]schedlock.Options{"one record is kept": {Keep: 1}, "it is older than is kept": {KeepFor: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			lost := f.dies(ctx, tick(0))
			var calls lostCalls
			o.Lost = calls.options().Lost
			in := f.instance(nil, &o)
			look := in.client.Inject(embedtest.Fault{Method: "Txn", Match: looks, Do: embedtest.FailWith, Times: -1})
			n := 0
			run := func() {
				n++
				res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome)
			}
			run()
			require.NoError(t, look.WaitHit(ctx))
			for range 3 {
				run()
			}
			_, err := in.Get(ctx, "job", lost.Tick)
			require.NoError(t, err, "no process has reported it")
			look.Remove()
			require.Eventually(t, func() bool { return len(calls.records()) == 1 }, soon, 20*time.Millisecond)
			require.True(t, lost.Tick.Equal(calls.records()[0].Tick))
			require.Eventually(t, func() bool { return f.marked(in) }, soon, 20*time.Millisecond)
			run()
			run()
			_, err = in.Get(ctx, "job", lost.Tick)
			require.ErrorIs(t, err, schedlock.ErrGone)
			require.LessOrEqual(t, len(f.Keys("/run/")), 2)
		})
	}
}

// A loss that no process can report keeps no more than twenty records.
func TestLossThatIsNotReportedKeepsFewRecords(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	f.dies(ctx, tick(0))
	in := f.instance(nil, &schedlock.Options{Keep: 1})
	in.client.Inject(embedtest.Fault{Method: "Txn", Match: looks, Do: embedtest.FailWith, Times: -1})
	for n := range 25 {
		_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(n+1)))
		require.NoError(t, err)
		require.LessOrEqual(t, len(f.Keys("/run/")), 21)
	}
	require.Len(t, f.Keys("/run/"), 1)
}
