package virtual

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A396: RetainUnknown counts from the end of a lost attempt although its process lives: when a lease is full of lost
// attempts, they expire, and at the earliest then. It was said to count from the end of the process.
func TestLostAttemptsOfALivingProcess(t *testing.T) {
	const perLease, retain = 100, time.Hour
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s := on[0].storeOf(idempotency.Options{OnLost: idempotency.Refuse, Retain: time.Minute, RetainUnknown: retain, MaxExecution: retain})
		var all []*idempotency.Attempt
		for n := range perLease {
			all = append(all, started(t, s, order(strconv.Itoa(n))))
		}
		time.Sleep(retain/2 - time.Second) // just before their lease is renewed
		for _, a := range all {
			require.NoError(t, a.Abandon(t.Context()))
		}
		on[0].keptFor(time.Now(), retain, perLease)
	})
}
