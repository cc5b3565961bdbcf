package schedlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// One process of all claims at once, whatever the others know of each other; those that run the
// job follow one by one, and those that are not known to do so take little time together.
func TestDelay(t *testing.T) {
	t.Parallel()
	var all []int64
	for n := range int64(200) {
		all = append(all, n)
	}
	for n := range 10 {
		key := fmt.Sprint("tick ", n)
		for known := range 4 {
			runners, others := all[:known*10], all[known*10:]
			first := 0
			for _, own := range all {
				d := delay(own, runners, others, key)
				require.LessOrEqual(t, d, time.Duration(known*10)*step+spread)
				if d == 0 {
					first++
				}
			}
			require.Equal(t, 1, first)
		}
		steps := map[time.Duration]bool{}
		for _, own := range all[:50] {
			steps[delay(own, all[:50], nil, key)] = true
		}
		require.Len(t, steps, 50, "one step each")
	}
}

// A process that has claimed a tick is known to run the job, as long as it lives.
func TestRunnersAreKnown(t *testing.T) {
	t.Parallel()
	l := &Locker{jobs: newJobs(&etcd{}, fewJobs, time.Now)}
	j := l.job("job")
	claims := func(lease int64) {
		j.apply(j.keys.Run(time.Unix(lease, 0)), &clientv3.Event{Kv: &mvccpb.KeyValue{
			Value: []byte(record.Run{State: record.RunRunning, Attempt: 1, Lease: lease}.Encode()),
		}})
	}
	claims(1)
	claims(2)
	runners, others := j.split([]int64{1, 2, 3})
	require.Equal(t, [][]int64{{1, 2}, {3}}, [][]int64{runners, others})
	runners, others = j.split([]int64{1, 3})
	require.Equal(t, [][]int64{{1}, {3}}, [][]int64{runners, others})
	require.Len(t, j.runners, 1, "those that are gone are forgotten")
}
