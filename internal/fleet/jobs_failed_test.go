package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A401, A402: when a job failed last, and when it lost a process, was not known: a failure was seen where no run was active, and a
// loss by how many there are in the records that are kept.
func TestLatestFailureAndLoss(t *testing.T) {
	t.Parallel()
	lost := record.Ended{Attempt: 1, State: record.RunRunning, StartMS: 300}
	failed := record.Ended{Attempt: 1, State: record.RunFailed, StartMS: 300, EndMS: 350}
	for what, c := range map[string]struct {
		run  record.Run
		lock bool // it is active
		want History
	}{
		"done":                     {record.Run{State: record.RunDone, Attempt: 1, StartMS: 400, EndMS: 500}, false, History{Success: 500}},
		"failed":                   {record.Run{State: record.RunFailed, Attempt: 1, StartMS: 400, EndMS: 500}, false, History{Failed: 1, LastFailure: 500}},
		"active":                   {record.Run{State: record.RunRunning, Attempt: 1, StartMS: 400}, true, History{}},
		"lost":                     {record.Run{State: record.RunRunning, Attempt: 1, StartMS: 400}, false, History{Lost: 1, LastLost: 400, LastFailure: 400}},
		"unlocked":                 {record.Run{State: record.RunUnlocked, Attempt: 1, StartMS: 400, EndMS: 500}, false, History{}},
		"lost, and done again":     {record.Run{State: record.RunDone, Attempt: 2, StartMS: 400, EndMS: 500, Earlier: []record.Ended{lost}}, false, History{Repeated: 1, LastLost: 300, Success: 500}},
		"lost, and active again":   {record.Run{State: record.RunRunning, Attempt: 2, StartMS: 400, Earlier: []record.Ended{lost}}, true, History{Repeated: 1, LastLost: 300}},
		"lost twice":               {record.Run{State: record.RunRunning, Attempt: 2, StartMS: 400, Earlier: []record.Ended{lost}}, false, History{Lost: 1, Repeated: 1, LastLost: 400, LastFailure: 400}},
		"failed, and active again": {record.Run{State: record.RunRunning, Attempt: 2, StartMS: 400, Earlier: []record.Ended{failed}}, true, History{}},
	} {
		s, put := planned(t)
		keys := s.space.Job("nightly")
		if c.lock {
			put(keys.Lock(), "{}") // at the revision of the record
		}
		put(keys.Run(time.UnixMilli(1000)), c.run.Encode())
		got := s.Jobs["nightly"].History(time.UnixMilli(5000))
		c.want.LastRun = 400
		require.Equal(t, c.want, got, what)
	}
}
