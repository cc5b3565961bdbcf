package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
