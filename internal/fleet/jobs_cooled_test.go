package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A274: a cooldown that Unlock ends after its run skips no more fire times: the next one is due. One that ends by itself, a little
// earlier by this clock, skips all before its end.
func TestNextFireTimeAfterAnUnlock(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	began := 10*hour + 1000
	for name, c := range map[string]struct{ ended, next int64 }{
		"unlocked":                      {12*hour + hour/2, 13 * hour},
		"unlocked at once":              {began, 11 * hour},
		"ended by itself":               {began + 5*hour, 16 * hour},
		"ended by itself, by its clock": {began + 5*hour - 2000, 16 * hour},
		"of an earlier run":             {9 * hour, 16 * hour},
	} {
		s, put := planned(t)
		keys := s.space.Job("nightly")
		put(keys.Cooldown(), "{}")
		put(keys.Run(time.UnixMilli(10*hour)), record.Run{State: record.RunDone, Attempt: 1, StartMS: began, EndMS: began + 1000}.Encode())
		s.Jobs["nightly"].Period, s.Jobs["nightly"].least = time.Hour, 5*time.Hour
		next := func() int64 { return s.Jobs["nightly"].History(time.UnixMilli(500)).Next }
		require.Equal(t, 16*hour, next(), name)
		s.Remove(keys.Cooldown())
		s.cooled(keys.Lock(), c.ended)
		s.cooled("elsewhere", c.ended)
		require.Equal(t, 16*hour, next(), name)
		s.cooled(keys.Cooldown(), c.ended)
		require.Equal(t, c.next, next(), name)
		fresh, _ := planned(t)
		fresh.Jobs["nightly"] = &Job{Period: time.Hour, least: 5 * time.Hour, in: fresh, queues: keys, Runs: s.Jobs["nightly"].Runs}
		fresh.inherit(s)
		require.Equal(t, c.next, fresh.Jobs["nightly"].History(time.UnixMilli(500)).Next, name)
		put(keys.Cooldown(), "{}")
		require.Equal(t, 16*hour, next(), name)
	}
}
