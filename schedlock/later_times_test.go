package schedlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A202: the end of a run, or the time of a resumption, is in a value of a later version. A tick that may have been
// suppressed by it is not started, and is not reported as overdue.
func TestOnceAfterLaterValues(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, tt := range map[string]struct {
		key    string
		starts int64
	}{"none": {"/none", 1}, "run": {"/run/", 0}, "operation": {"/operation", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			h := clock(friday)
			a := f.instance(nil, h.options())
			_, err := a.Do(ctxT(t), "job", nothing, schedlock.Tick(friday), ofNine, schedlock.Retries(1))
			require.NoError(t, err)
			h.set(friday.Add(time.Hour))
			require.NoError(t, a.Pause(ctxT(t), "job", ""))
			require.NoError(t, a.Resume(ctxT(t), "job"))
			require.NoError(t, a.sess.Close(ctxT(t)))
			for key, value := range f.Values(tt.key) {
				_, err := f.Client().Put(ctxT(t), key, `{"v":2`+strings.TrimPrefix(value, `{"v":1`))
				require.NoError(t, err)
			}
			_, starts, reported := f.begins(saturday.Add(time.Hour))
			got(t, reported, "it has looked for what was missed")
			require.Equal(t, tt.starts, starts.Load())
		})
	}
}

// A202: the time of a resumption in a value of a later version is not known: no start is overdue that came before now.
func TestNotOverdueAfterALaterResumption(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(friday)
	a := f.instance(nil, h.options())
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	_, err := a.Do(ctxT(t), "job", nothing, schedlock.Tick(friday), planned)
	require.NoError(t, err)
	require.NoError(t, a.Pause(ctxT(t), "job", ""))
	require.NoError(t, a.Resume(ctxT(t), "job"))
	h.set(friday.AddDate(0, 0, 1).Add(2 * time.Hour))
	overdue := func() time.Time {
		st, err := a.Status(ctxT(t), "job")
		require.NoError(t, err)
		return st.Overdue(h.now())
	}
	require.False(t, overdue().IsZero())
	for key, value := range f.Values("/operation") {
		_, err := f.Client().Put(ctxT(t), key, `{"v":2`+strings.TrimPrefix(value, `{"v":1`))
		require.NoError(t, err)
	}
	require.Zero(t, overdue())
}
