package schedlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A value of a later version may be all that shows that the job is in use: Forget refuses, and removes nothing.
func TestForgetBesideALaterRelease(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"/pause", "/operation"} {
		f := shared(t)
		f.retired(1)
		b := f.instance(nil, nil)
		require.NoError(t, b.Pause(ctxT(t), "job", "retired"))
		value := ""
		for key, now := range f.Values("/job/job" + of) {
			value = `{"v":2` + strings.TrimPrefix(now, `{"v":1`)
			_, err := f.Client().Put(ctxT(t), key, value)
			require.NoError(t, err)
		}
		err := b.Forget(ctxT(t), "job")
		require.ErrorIs(t, err, schedlock.ErrInUse)
		require.ErrorContains(t, err, "version 2")
		require.Equal(t, value, f.Values("/job/job" + of)[f.Keys("/job/job" + of)[0]])
	}
}
