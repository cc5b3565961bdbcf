package virtual

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// stuck is a daily schedule whose Next does not return to a function of schedlock's until it is released.
type stuck struct {
	in      string
	release chan struct{}
}

func (s stuck) Next(t time.Time) time.Time {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for {
		f, more := frames.Next()
		if s.in != "" && strings.HasSuffix(f.Function, s.in) {
			<-s.release
		}
		if !more {
			return schedlock.Periods(24 * time.Hour).Next(t)
		}
	}
}

// A337: the error of Job.Remove says what it has waited for, and that etcd does not answer only if that is so. A schedule of the
// program's may take long, in a claim or in a plan of another job.
func TestRemoveSaysWhatItHasWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, other string // where the schedule of the job does not return, or that of another one
		away      bool
		want      string
	}{
		"a claim of a slow schedule":   {in: "(*claim).creation", want: "a claim of this process has not ended"},
		"a claim, and etcd is away":    {away: true, want: "a claim of this process has not ended"},
		"the plans of a slow schedule": {other: "(*planner).writeSome", want: "this process is writing its plans"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				l := d.locker()
				release := make(chan struct{})
				defer close(release)
				job, err := l.Job("job", stuck{c.in, release}, noWork)
				require.NoError(t, err)
				job.Next(time.Now())
				time.Sleep(3 * time.Second) // its plan is stored
				if c.other != "" {
					other, err := l.Job("other", stuck{c.other, release}, noWork)
					require.NoError(t, err)
					other.Next(time.Now())
					time.Sleep(3 * time.Second)
				}
				if c.away {
					d.client.Stall()
				}
				if c.want == "a claim of this process has not ended" {
					go func() { _, _ = job.RunContext(context.Background()) }()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err = job.Remove(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, c.want)
				if c.away {
					require.ErrorIs(t, err, schedlock.ErrUnavailable)
				} else {
					require.NotErrorIs(t, err, schedlock.ErrUnavailable)
				}
			})
		})
	}
}
