package schedlock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A process that has not read the other clocks yet knows no slowest clock: it could trim
// what is the future of the others.
func TestSlowestClockOfAnUnreadFleet(t *testing.T) {
	t.Parallel()
	c := &clocks{now: time.Now}
	_, ok := c.slowest(1)
	require.False(t, ok)
	c.Reset(nil, 1)
	_, ok = c.slowest(1)
	require.True(t, ok, "it is alone")
}

// TestSlowestClock: what a process takes for the slowest clock of its fleet is passed by every clock, whatever steps its own clock
// and theirs make. The clock of one of several processes was set forward by a day; for the next four minutes what it had
// read before counted beside its new time, so it took tomorrow for passed by all, and closed its job for the fleet until then
// (A440 in internal/proof/tested-failures.md). What was listed at the start was no bound, so a process that lived for less than a
// minute removed no record, nor did one beside a process of a later release (A442).
func TestSlowestClock(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	// How far the clocks are from the true time when the other one is read.
	type step struct {
		own, other time.Duration
		listed     bool // the other clock is read by a list
		later      bool // it is of a later release, and cannot be read
		nothing    bool // it is not read again
		gone       bool // its process has ended
	}
	for name, x := range map[string]struct {
		steps []step
		want  time.Duration
		known bool
	}{
		"all are right":                      {[]step{{}, {}}, 0, true},
		"the own clock is set forward":       {[]step{{}, {own: day, nothing: true}}, 0, true},
		"and the others are read again":      {[]step{{}, {own: day}}, 0, true},
		"the own clock is set back":          {[]step{{}, {own: -day, nothing: true}}, -day, true},
		"the other one is set forward":       {[]step{{}, {other: day}}, 0, true},
		"the other one is set back":          {[]step{{}, {other: -time.Hour}}, -time.Hour, true},
		"the other one was slow":             {[]step{{other: -time.Hour}, {other: -time.Hour}}, -time.Hour, true},
		"it was listed alone":                {[]step{{other: -time.Minute, listed: true}}, -time.Minute, false},
		"and then the own one is forward":    {[]step{{other: -time.Minute, listed: true}, {own: day, nothing: true}}, -time.Minute, false},
		"it was listed, and read":            {[]step{{other: -time.Minute, listed: true}, {}}, 0, true},
		"it was listed again after a gap":    {[]step{{}, {other: -time.Hour, listed: true}}, -time.Hour, true},
		"it is of a later release":           {[]step{{later: true, listed: true}, {later: true}}, -day, false},
		"of a later one, and set forward":    {[]step{{later: true}, {own: day, later: true}}, 0, false},
		"of a later one since it was read":   {[]step{{}, {own: day, later: true}}, 0, true},
		"all others have ended":              {[]step{{}, {own: day, gone: true}}, 0, false},
		"and that is listed":                 {[]step{{}, {own: day, gone: true, listed: true}}, 0, false},
		"it was read more often than counts": {[]step{{other: -time.Hour}, {}, {}, {}, {}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			var mu sync.Mutex
			own := time.Duration(0)
			space, err := keyspace.New("/etcdkit/v1/", "test")
			require.NoError(t, err)
			c := &clocks{space: space, outlasts: samples * beat, peers: map[string]*peer{}, now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(own)
			}}
			c.Reset(nil, 1)
			for n, s := range x.steps {
				mu.Lock()
				own = s.own
				mu.Unlock()
				value := record.Clock{Owner: "other", AtMS: time.Now().Add(s.other).UnixMilli()}.Encode()
				if s.later {
					value = `{"v":2,"when":1}`
				}
				kv := &mvccpb.KeyValue{Key: []byte(space.Clock(7)), Lease: 7, ModRevision: int64(n + 1), Value: []byte(value)}
				switch {
				case s.nothing:
				case s.gone && s.listed:
					c.Reset(nil, int64(n+1))
				case s.gone:
					c.Apply([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: kv}}, int64(n+1))
				case s.listed:
					c.Reset([]*mvccpb.KeyValue{kv}, int64(n+1))
				default:
					c.Apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}}, int64(n+1))
				}
			}
			at, ok := c.slowest(1)
			require.True(t, ok)
			require.WithinRange(t, at.Add(-x.want), begun.Add(-time.Second), time.Now())
			if all := c.list(1); x.steps[len(x.steps)-1].gone {
				require.Empty(t, all)
				c.gone[0].ended = time.Now().Add(-c.outlasts - time.Second)
				at, _ = c.slowest(1)
				require.WithinDuration(t, c.now(), at, time.Second, "it does not count for ever")
			} else {
				require.Len(t, all, 1)
				require.Equal(t, x.known, all[0].Known)
			}
		})
	}
}

// A step of the own clock counts at once in how far the others are ahead of it.
func TestClocksAfterAStepOfTheOwn(t *testing.T) {
	t.Parallel()
	ahead := time.Duration(0)
	p := &peer{}
	p.read(&mvccpb.KeyValue{Value: []byte(record.Clock{Owner: "other", AtMS: time.Now().UnixMilli()}.Encode())}, false)
	for _, ahead = range []time.Duration{0, time.Hour, -time.Hour} {
		d, known := p.ahead(time.Now().Add(ahead))
		require.True(t, known)
		require.InDelta(t, -ahead, d, float64(time.Second))
	}
}
