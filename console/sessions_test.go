package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// The page of the sessions shows which clocks of processes that run jobs differ from the console's.
func TestClocks(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	s.page("/sessions") // from now on clocks are compared
	shown := func(owner, clock string) bool {
		_, row, _ := strings.Cut(s.page("/sessions"), "<bdi>"+owner+"</bdi>")
		row, _, _ = strings.Cut(row, "</tr>")
		return strings.Contains(row, clock)
	}
	// What a process publishes before the console follows the clocks is no reading: then others begin.
	measured := func(owner string, ahead time.Duration, clock string) {
		for i := range 20 {
			name := fmt.Sprint(owner, "-", i)
			_, err := schedlock.New(s.session(name), &schedlock.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
			require.NoError(t, err)
			for range 30 {
				if time.Sleep(100 * time.Millisecond); shown(name, clock) {
					return
				}
			}
		}
		t.Fatalf("no clock is shown as %s", clock)
	}
	measured("fast", time.Hour, "ahead</td>")
	measured("slow", -time.Hour, "behind</td>")
	require.True(t, shown("console", "<td>–</td>"))
}
