package etcdfake_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// A job of 02:30 runs once in the night that has no 02:30, on two machines.
func clockChange(t *testing.T, etcd *etcdfake.Server) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	ok(t, err)
	midnight := time.Date(2000, time.March, 26, 0, 0, 0, 0, berlin) // bubbles begin in the year 2000
	if time.Now().After(midnight) {
		t.Skip("the night is over: this test needs the clock of a bubble, and no real etcd")
	}
	time.Sleep(time.Until(midnight.Add(90 * time.Minute)))                      // 01:30
	ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(3*time.Hour)) // 04:00
	defer cancel()

	var mu sync.Mutex
	var starts []string
	var machines sync.WaitGroup
	for range 2 {
		locker, err := schedlock.New(session(t, etcd.NewClient()), nil)
		ok(t, err)
		job, err := locker.Job("report", crontab.MustParse("30 2 * * *", berlin), func(context.Context, *schedlock.Run) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now().In(berlin).Format("15:04 MST"))
			return nil
		})
		ok(t, err)
		machines.Go(func() { // here: your cron library
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(job.Next(time.Now()))):
					_, _ = job.RunContext(ctx)
				}
			}
		})
	}
	machines.Wait()
	if want := []string{"03:00 CEST"}; !slices.Equal(starts, want) {
		t.Errorf("the report started at %q, not at %q", starts, want)
	}
}

// A job in the night of the clock change.
func Example_clockChange() {
	example(func(t *testing.T) { // here: func TestClockChange(t *testing.T)
		etcdfake.Test(t, clockChange)
	})
	// Output: PASS
}
