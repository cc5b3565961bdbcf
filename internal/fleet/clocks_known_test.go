package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A340: the clock of a process that writes seldom is known all the time, also if each change takes a little longer than the one
// before. It is not known any more 15 minutes after the last one.
func TestClockOfAProcessThatWritesSeldom(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	const minute, begun, lead = int64(time.Minute / time.Millisecond), int64(1_000_000_000), 10_000
	for _, period := range []int64{1, 2, 5, 10, 15} {
		for _, slower := range []int64{0, 5, -5} { // milliseconds, from one change to the next
			s := NewState(space, false)
			s.Put(&mvccpb.KeyValue{Key: []byte(space.Session(7).Alive()), Value: []byte(record.Clock{Owner: "web-7", AtMS: 1}.Encode()), Lease: 7, CreateRevision: 1, ModRevision: 1}, begun)
			way, last := int64(100), int64(0)
			for passed := range int64(60) {
				now := begun + passed*minute
				if passed%period == 0 {
					way += slower
					last = passed
					s.measure(&mvccpb.KeyValue{Key: []byte(space.Clock(7)), Value: []byte(record.Clock{Owner: "web-7", AtMS: now + lead - way}.Encode()), Lease: 7}, now)
				}
				ms, ok := s.Skew(now)
				require.True(t, ok, "every %d minutes, %d ms slower: unknown after %d", period, slower, passed)
				require.InDelta(t, lead, ms, 500)
				require.Len(t, s.Off(now, 1000, 10, func(owner string) string { return owner }), 1)
			}
			end := begun + last*minute
			for after, known := range map[int64]bool{15 * minute: true, 15*minute + 1: false} {
				_, ok := s.Skew(end + after)
				require.Equal(t, known, ok)
				s.asOf = end + after
				require.Equal(t, known, s.ClockOf(7).Measured)
			}
		}
	}
}
