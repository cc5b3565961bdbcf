package schedlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// gocron leaves out a fire time that has passed when Lock returns. So a Lock that waits for etcd
// gives up a second before gocron's next call.
func TestGocronLockReturnsBeforeTheNextCall(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		at   time.Time
		cron bool
		opts []schedlock.Option
		late time.Duration // after the tick of at
	}{
		"gocronlock.NewCron":                  {at: friday, cron: true, late: day - time.Second},
		"gocronlock.NewCron with LateBy":      {at: friday, cron: true, opts: []schedlock.Option{schedlock.LateBy(day)}, late: day},
		"gocronlock.New":                      {at: midnight, late: day - time.Second},
		"gocronlock.New, early":               {at: midnight.Add(-20 * time.Millisecond), late: day - time.Second - 20*time.Millisecond},
		"gocronlock.New, in the period":       {at: midnight.Add(time.Hour), late: day},
		"gocronlock.New, late in the period":  {at: midnight.Add(day - time.Minute), late: day},
		"gocronlock.New with LateBy":          {at: midnight, opts: []schedlock.Option{schedlock.LateBy(day)}, late: day},
		"gocronlock.New with a longer LateBy": {at: midnight, opts: []schedlock.Option{schedlock.LateBy(2 * day)}, late: 2 * day},
	} {
		for passed, now := range map[bool]time.Duration{false: tt.late - time.Millisecond, true: tt.late} {
			t.Run(name+map[bool]string{false: ", in time", true: ", too late"}[passed], func(t *testing.T) {
				t.Parallel()
				ctx := ctxT(t)
				h := clock(tt.at)
				in := shared(t).instance(nil, h.options())
				var locker gocronLike
				tick := midnight
				if tt.cron {
					tick = friday
					c, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{}, tt.opts...)
					require.NoError(t, err)
					require.NoError(t, c.IsValid("", time.UTC, tt.at))
					locker = c
				} else {
					l, err := gocronlock.New[gocronLock](in.Locker, day, tt.opts...)
					require.NoError(t, err)
					locker = l
				}
				inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse})
				done := make(chan error, 1)
				go func() {
					lock, err := locker.Lock(ctx, "job")
					if err == nil {
						err = lock.Unlock(ctx)
					}
					done <- err
				}()
				require.NoError(t, inj.WaitHit(ctx))
				h.set(tick.Add(now))
				require.NoError(t, inj.Release())
				err := got(t, done, "Lock returns")
				var skipped *gocronlock.SkippedError
				if !passed {
					require.NoError(t, err)
				} else if errors.As(err, &skipped) {
					require.Equal(t, schedlock.Late, skipped.Result.Outcome)
				} else {
					t.Fatalf("%v", err)
				}
			})
		}
	}
}
