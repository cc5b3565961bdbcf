package virtual

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// totals is a script of two processes and one key of a limiter with a total.
func totals(limit, total int, steps ...step) script {
	return script{ttl: 5 * time.Second, processes: 2, limit: limit, total: total, key: "k", steps: append(steps,
		step{do: status, key: "k", pause: 15 * time.Second})} // with the last step all faults end
}

// holds is a step of a process that acquires a permit and holds it.
func holds(who, weight int, d time.Duration) step {
	return step{who: who, do: acquire, key: "k", n: weight, d: d, ctx: 20 * time.Second, pause: time.Second}
}

// N1: what a process has read of a key says whether one Txn may write both requests. Weights above 1
// count as much as there can be, and the limits must be the same.
func TestTrapN1BothInOneTxn(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]script{
		"a heavy request is there":  totals(2, 4, holds(0, 2, 5*time.Second), holds(0, 1, 0)),
		"the default was lowered":   totals(1, 1, holds(0, 1, 0), step{who: 1, do: setDefault, n: 0, pause: time.Second}, holds(0, 1, 0)),
		"the key's was lowered":     totals(1, 1, holds(0, 1, 0), step{who: 1, do: setLimit, key: "k", n: 0, pause: time.Second}, holds(0, 1, 0)),
		"the total alone was taken": totals(1, 1, holds(0, 1, 0), step{who: 1, do: setLimit, all: true, n: 0, pause: time.Second}, holds(0, 1, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, judge(run(t, s)))
		})
	}
}

// N1: the Txn by which a request joins the total is held up, and when it arrives the request is not
// admitted at its key any more, or not there.
func TestTrapN1JoinsTooLate(t *testing.T) {
	t.Parallel()
	slow := step{who: 1, do: meet, method: "Txn", n: 1, fate: slowThere, d: 2 * time.Second, pause: time.Second / 2}
	waits := holds(1, 1, time.Second)
	waits.id = "a"
	for name, s := range map[string]script{
		"the default was raised and lowered": totals(1, 3, holds(0, 1, 10*time.Second), waits, slow,
			step{do: setDefault, n: 2, pause: time.Second}, step{do: setDefault, n: 1, pause: time.Second}),
		"it was evicted": totals(1, 3, holds(0, 1, 2*time.Second), waits, slow,
			step{do: evict, key: "k", id: "a", pause: 2 * time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, judge(run(t, s)))
		})
	}
}

// N2: etcd's client has sent the Txn of a request twice, and the second copy comes after the release: it
// writes both levels once more. The sweep removes them together, as every removal does.
func TestTrapN2SweepOfALateCopy(t *testing.T) {
	t.Parallel()
	const copied = 70 * time.Millisecond
	require.Empty(t, judge(run(t, totals(1, 1,
		step{do: meet, n: 3, method: "Txn", fate: twice, d: copied}, // what stores both limits, and the request
		holds(0, 1, copied/2)))))
}

// N2: the same, and before the sweep another key's request is to have the slot, whose name in the total the copy has.
func TestTrapN2SlotOfALateCopy(t *testing.T) {
	t.Parallel()
	const copied = 3 * time.Millisecond
	other := holds(0, 1, copied)
	other.key = "k1"
	require.Empty(t, judge(run(t, totals(1, 3,
		step{do: meet, n: 5, method: "Txn", fate: twice, d: copied, pause: time.Millisecond},
		step{who: 0, do: acquire, key: "k", n: 1, ctx: time.Second, pause: 3 * copied},
		other))))
}

// N3: the default is lowered while a request waits, and the watch loses that event. By what the waiter
// has read it fits when one of the holders leaves; it is admitted when it is the only one.
func TestTrapN3DefaultIsLost(t *testing.T) {
	t.Parallel()
	for _, total := range []int{0, 5} {
		t.Run(fmt.Sprint("total ", total), func(t *testing.T) {
			t.Parallel()
			require.Empty(t, judge(run(t, totals(3, total,
				holds(0, 1, 6*time.Second), holds(0, 1, 9*time.Second), holds(0, 1, 12*time.Second), holds(1, 1, time.Second),
				step{who: 1, do: meet, n: 9, method: ofDefault, fate: unanswered},
				step{do: setDefault, n: 1, pause: 10 * time.Millisecond}))))
		})
	}
}
