package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

func TestSkippedTicks(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 23, 12, minute, 0, 0, time.UTC) }
	ran := func(minute, until int) schedlock.Record {
		return schedlock.Record{Tick: at(minute), State: schedlock.RunDone, Start: at(minute), End: at(until)}
	}
	const periodic = "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 5m0s"
	for name, c := range map[string]struct {
		settings string
		records  []schedlock.Record
		want     string
	}{
		"none":             {periodic, []schedlock.Record{ran(10, 11), ran(5, 6)}, "10 done; 5 done"},
		"one":              {periodic, []schedlock.Record{ran(10, 11), ran(0, 1)}, "10 done; 5 skipped 1 until 5: not stored; 0 done"},
		"while it ran":     {periodic, []schedlock.Record{ran(20, 21), ran(0, 15)}, "20 done; 5 skipped 3 until 15: the run before; 0 done"},
		"some of that":     {periodic, []schedlock.Record{ran(20, 21), ran(0, 14)}, "20 done; 5 skipped 3 until 15: not stored; 0 done"},
		"one to come":      {periodic, []schedlock.Record{ran(55, 56), ran(10, 11), ran(0, 1)}, "55 done; 10 done; 5 skipped 1 until 5: not stored; 0 done"},
		"by hand between":  {periodic, []schedlock.Record{ran(10, 11), ran(7, 8), ran(5, 6)}, "10 done; 7 done; 5 done"},
		"times of day":     {"AtMost 1h0m0s, AtLeast 0s, Retries 0", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
		"no settings":      {"", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
		"damaged settings": {"Every 5ns", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
	} {
		var got []string
		for _, r := range withSkipped(c.records, c.settings, at(20)) {
			text := fmt.Sprintf("%d %s", r.Tick.Minute(), r.State)
			if r.Skipped != nil {
				reason, _, _ := strings.Cut(r.Error, ":")
				text += fmt.Sprintf(" %d until %d: %s", r.Skipped.Count, r.Skipped.Until.Minute(), strings.TrimSuffix(reason, " was active"))
			}
			got = append(got, text)
		}
		require.Equal(t, c.want, strings.Join(got, "; "), name)
	}
}
