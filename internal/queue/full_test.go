package queue

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// A601: how full a queue is has no number below 0, whatever was counted, and a wait ends with it only if it shows what has kept
// the call waiting. Otherwise the queue is one that was not seen, which is no reason to refuse.
func TestFullHasRoom(t *testing.T) {
	t.Parallel()
	q := &Queue{Reader: Reader{Limit: limit.NewFixed(5)}}
	gone := mirror.Brief{Limit: 5, Waits: true}
	for name, c := range map[string]struct {
		full          *Full
		used, waiting int64
		ends          *Full // with which a wait of weight 2 ends
	}{
		"less than none":           {q.fullCount(5, -1), 0, 0, q.unseen()},
		"empty":                    {q.fullCount(5, 0), 0, 0, q.unseen()},
		"2 are free":               {q.fullCount(5, 3), 3, 0, q.unseen()},
		"1 is free":                {q.fullCount(5, 4), 4, 0, q.fullCount(5, 4)},
		"others wait":              {q.fullCount(5, 8), 5, 3, q.fullCount(5, 8)},
		"a view without the call":  {q.fullShown(gone), 0, 0, q.unseen()},
		"a read without requests":  {q.fullView(mirror.View{Limit: 5, Used: -1}, 0), 0, 0, q.unseen()},
		"heavy, but none":          {q.fullOf(true, 0), 0, 0, q.unseen()},
		"heavy, and less than one": {q.fullOf(true, -1), 0, 0, q.unseen()},
		"heavy":                    {q.fullOf(true, 2), 5, 0, q.fullCount(5, 5)},
		"not counted":              {q.fullOf(false, 0), 0, 0, q.unseen()},
		"paused":                   {q.paused(), 0, 0, q.paused()},
	} {
		require.Equal(t, []int64{c.used, c.waiting}, []int64{c.full.Used, int64(c.full.Waiting)}, name)
		require.Equal(t, &WaitEnd{c.ends}, c.full.Ends(2), name)
	}
}

// A601: the estimate is a time that a caller can wait for, also if permits are held for years.
func TestRetryAfterIsNeverNegative(t *testing.T) {
	t.Parallel()
	h := &HoldTimes{}
	h.Add(math.MaxInt64)
	require.Equal(t, mostRetryAfter, h.RetryAfter(math.MaxInt32, 1))
	require.Positive(t, h.RetryAfter(0, math.MaxInt32))
	require.Less(t, h.RetryAfter(0, math.MaxInt32), time.Hour)
}
