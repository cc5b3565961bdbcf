package schedlock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// trusted is a lease that is always trusted.
type trusted struct{}

func (trusted) Valid() bool         { return true }
func (trusted) Deadline() time.Time { return time.Now().Add(time.Hour) }

// TestUnlockAroundTheAnswerToAClaim: the answer to a claim arrives before, between or after the events of an Unlock, and possibly
// after those of a later run: the run ends with ErrUnlocked. An Unlock of another run does not end it.
func TestUnlockAroundTheAnswerToAClaim(t *testing.T) {
	t.Parallel()
	keys := keyspace.Job{Range: "job/"}
	tick := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	lockGone := func(revision int64) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(keys.Lock()), ModRevision: revision}}
	}
	unlocked := func(tick time.Time, revision int64) *clientv3.Event {
		value := record.Run{State: record.RunUnlocked, Attempt: 1, By: "ann", Error: "it hangs"}.Encode()
		return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(keys.Run(tick)), Value: []byte(value), ModRevision: revision}}
	}
	own := []*clientv3.Event{unlocked(tick, 9), lockGone(9), lockGone(12)}
	for name, c := range map[string]struct {
		events []*clientv3.Event
		want   error
	}{
		"its own":           {own, ErrUnlocked},
		"of an earlier one": {[]*clientv3.Event{unlocked(tick.Add(-time.Hour), 3), lockGone(3)}, nil},
		"of another one":    {[]*clientv3.Event{unlocked(tick.Add(-time.Hour), 7), lockGone(7)}, ErrLost},
		"its lock was lost": {[]*clientv3.Event{lockGone(9)}, ErrLost},
	} {
		for answered := range len(c.events) + 1 {
			j := &job{keys: keys, claimed: map[string]string{}, runners: map[int64]bool{}, runs: map[int64]*Run{}, changed: make(chan struct{})}
			r := &Run{job: j, claim: &claimed{tick: tick, token: 5, attempt: 1}}
			r.life.Begin(context.Background(), trusted{}, (*ends)(r))
			for n, ev := range slices.Insert(slices.Clone(c.events), answered, nil) {
				if n == answered {
					j.begin(r)
					continue
				}
				j.apply(string(ev.Kv.Key), ev)
			}
			require.ErrorIs(t, r.Err(), c.want, name)
			if c.want == ErrLost { //nolint:errorlint // of the table
				require.NotErrorIs(t, r.Err(), ErrUnlocked, name)
			}
			if c.want == ErrUnlocked { //nolint:errorlint // of the table
				require.ErrorContains(t, r.Err(), "by ann: it hangs", name)
			}
		}
	}
}
