package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// The next fire time is after the latest record, and not before the job was resumed: no process starts a
// tick from before that.
func TestNextFireTime(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	for name, c := range map[string]struct {
		operated, next int64
		period         time.Duration
	}{
		"after the record":       {0, 11 * hour, time.Hour},
		"paused before it":       {9 * hour, 11 * hour, time.Hour},
		"resumed three hours on": {13*hour + hour/2, 14 * hour, time.Hour},
		"a period is not known":  {0, 0, 0},
	} {
		j := &Job{Period: c.period, Runs: map[int64]Run{10 * hour: {State: "done"}}, operated: c.operated}
		require.Equal(t, c.next, j.History().Next, name)
	}
}

// A job of which Forget has left its floor alone is forgotten, and used again it is not.
func TestForgotten(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	s, keys := NewState(space, true), space.Job("invoices")
	put := func(key string) { s.Put(&mvccpb.KeyValue{Key: []byte(key), CreateRevision: 1, ModRevision: 1}, 0) }
	put(keys.Floor(time.Unix(60, 0)))
	require.True(t, s.Jobs["invoices"].Forgotten())
	put(keys.Cooldown())
	put(keys.Cooldown())
	require.False(t, s.Jobs["invoices"].Forgotten())
	require.True(t, s.Jobs["invoices"].Cooling)
	s.remove(keys.Cooldown())
	require.True(t, s.Jobs["invoices"].Forgotten())
	require.False(t, s.Jobs["invoices"].Cooling)
	s.remove(keys.Floor(time.Unix(60, 0)))
	require.Empty(t, s.Jobs)
}
