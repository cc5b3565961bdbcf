package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// TestRemainingRecords: a process looks for old records from the floor on that it has seen last, and
// from the first name on if it has seen none, or if that was deleted.
func TestRemainingRecords(t *testing.T) {
	t.Parallel()
	keys := keyspace.Job{Range: "job/"}
	at := func(n int) time.Time { return time.Date(2026, 11, 23, 4, 0, n, 0, time.UTC) }
	put := func(key string) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key)}}
	}
	gone := func(key string) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key)}}
	}
	for name, c := range map[string]struct {
		events []*clientv3.Event
		tick   time.Time
		want   time.Time // zero is all
	}{
		"nothing is known":                  {nil, at(9), time.Time{}},
		"records were removed":              {[]*clientv3.Event{put(keys.Floor(at(3)))}, at(9), at(3)},
		"and more of them":                  {[]*clientv3.Event{put(keys.Floor(at(3))), gone(keys.Floor(at(3))), put(keys.Floor(at(4)))}, at(9), at(4)},
		"in another order":                  {[]*clientv3.Event{put(keys.Floor(at(3))), put(keys.Floor(at(4))), gone(keys.Floor(at(3)))}, at(9), at(4)},
		"the floor was deleted by hand":     {[]*clientv3.Event{put(keys.Floor(at(3))), gone(keys.Floor(at(3)))}, at(9), time.Time{}},
		"a tick that is not after it":       {[]*clientv3.Event{put(keys.Floor(at(3)))}, at(3), time.Time{}},
		"a key that is no floor":            {[]*clientv3.Event{put(keys.Floor(at(3))), put(keys.Floors() + "x"), gone(keys.Floors() + "x")}, at(9), at(3)},
		"a foreign key before there is one": {[]*clientv3.Event{put(keys.Floors() + "x")}, at(9), time.Time{}},
	} {
		j := &job{keys: keys, changed: make(chan struct{})}
		for _, ev := range c.events {
			j.apply(string(ev.Kv.Key), ev)
		}
		record, floor := j.remaining(c.tick)
		if c.want.IsZero() {
			require.Equal(t, []string{keys.Runs(), keys.Floors()}, []string{record, floor}, name)
			continue
		}
		require.Equal(t, []string{keys.Run(c.want) + "\x00", keys.Floor(c.want)}, []string{record, floor}, name)
	}
	l := &Locker{etcd: &etcd{}, jobs: newJobs(&etcd{}, fewJobs, time.Now), opts: Options{Now: time.Now}}
	l.plans = &planner{locker: l}
	l.jobs.byRange[keys.Range] = &job{keys: keys, changed: make(chan struct{}), floor: at(3)}
	l.resync()
	record, _ := l.used(keys.Range).remaining(at(9))
	require.Equal(t, keys.Runs(), record, "its deletion may have been missed")
}
