package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// N2: etcd's client has sent the Txn of a request twice, and the second copy comes after the release: it
// writes both levels once more. The sweep removes them together, as every removal does.
func TestTrapN2SweepOfALateCopy(t *testing.T) {
	t.Parallel()
	const copied = 70 * time.Millisecond
	s := script{ttl: 5 * time.Second, processes: 2, limit: 1, total: 1, steps: []step{
		{who: 0, do: meet, n: 3, method: "Txn", fate: twice, d: copied}, // what stores both limits, and the request
		{who: 0, do: acquire, key: "k", n: 1, d: copied / 2, ctx: time.Second, pause: time.Second},
		{who: 1, do: status, key: "k", pause: time.Second}, // with the last step all faults end
	}}
	require.Empty(t, judge(run(t, s)))
}
