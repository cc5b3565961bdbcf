package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A274, A336: a cooldown that Unlock ends after its run skips no more fire times: the next one is due, whenever the state was
// read. One that ends by itself, a little earlier by this clock, skips all before its end.
func TestNextFireTimeAfterAnUnlock(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	began := 10*hour + 1000
	for name, c := range map[string]struct {
		state         string
		cooled, ended int64
		next          int64
	}{
		"it cools down":              {record.RunDone, 0, began + 1000, 16 * hour},
		"unlocked":                   {record.RunDone, 12*hour + hour/2, began + 1000, 13 * hour},
		"unlocked at once":           {record.RunDone, began, began + 1000, 11 * hour},
		"unlocked by a clock behind": {record.RunDone, 9 * hour, began + 1000, 11 * hour},
		"unlocked by a clock ahead":  {record.RunDone, 40 * hour, began + 1000, 16 * hour},
		"lost":                       {record.RunRunning, 0, 0, 16 * hour},
		"lost, and unlocked":         {record.RunRunning, 12*hour + hour/2, 0, 13 * hour},
		"the run was unlocked":       {record.RunUnlocked, 0, began + 1000, 11 * hour},
	} {
		s, put := planned(t)
		put(s.space.Job("nightly").Run(time.UnixMilli(10*hour)), record.Run{State: c.state, Attempt: 1, StartMS: began, EndMS: c.ended, CooledMS: c.cooled}.Encode())
		put(s.space.Job("nightly").Run(time.UnixMilli(8*hour)), record.Run{State: record.RunDone, Attempt: 1, StartMS: 8 * hour, EndMS: 8 * hour, CooledMS: 9 * hour}.Encode())
		s.Jobs["nightly"].Period, s.Jobs["nightly"].least = time.Hour, 5*time.Hour
		require.Equal(t, c.next, s.Jobs["nightly"].History(time.UnixMilli(10*hour)).Next, name)
	}
}
