package virtual

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A requested run is tried again as one of Trigger (A563 in internal/proof/tested-failures.md): the minute in which a request must be
// started bounded its further attempts too, so that a run which failed after a minute was not repeated.
func TestFurtherAttemptsOfARequestedRun(t *testing.T) {
	t.Parallel()
	const pause = 10 * time.Second
	for name, c := range map[string]struct {
		fails time.Duration // after the start of each attempt
		opts  []schedlock.JobOption
		want  int
	}{
		"soon":                        {time.Second, nil, 3},
		"after a minute":              {61 * time.Second, nil, 3},
		"LateBy ends the attempts":    {61 * time.Second, []schedlock.JobOption{schedlock.LateBy(2 * time.Minute)}, 2},
		"LateBy is below the failure": {61 * time.Second, []schedlock.JobOption{schedlock.LateBy(30 * time.Second)}, 1},
		"until the next fire time":    {90 * time.Minute, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				on[0].open(concurrency.SessionOptions{TTL: 5 * time.Minute}) // for days
				time.Sleep(time.Until(daily(9 * time.Hour).Next(time.Now())))
				ended := make(chan schedlock.Result, 10)
				l, err := schedlock.New(on[0].session, &schedlock.Options{Done: func(r schedlock.Result, _ error) { ended <- r }})
				require.NoError(t, err)
				attempts := 0
				job, err := l.Job("job", daily(13*time.Hour), func(context.Context, *schedlock.Run) error {
					attempts++
					time.Sleep(c.fails)
					return errors.New("the database is down")
				}, append(c.opts, schedlock.RetryFailed(2, pause), schedlock.AtMost(2*time.Hour))...)
				require.NoError(t, err)
				job.Next(time.Now())
				time.Sleep(time.Minute)

				_, err = job.Trigger(t.Context())
				require.Error(t, err)
				<-ended
				require.Equal(t, c.want, attempts, "of Trigger")
				time.Sleep(time.Until(daily(9*time.Hour + time.Minute).Next(time.Now()))) // as long before the next fire time

				attempts = 0
				_, err = l.RequestRun(t.Context(), "job", "")
				require.NoError(t, err)
				require.Equal(t, schedlock.Failed, (<-ended).Outcome)
				require.Equal(t, c.want, attempts, "of RequestRun")
			})
		})
	}
}
