package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The page of the sessions shows which clocks of processes that run jobs differ from the console's.
func TestClocks(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	s.page("/sessions") // from now on clocks are compared
	for owner, ahead := range map[string]time.Duration{"fast-1": time.Hour, "slow-1": -time.Hour} {
		_, err := schedlock.New(s.session(owner), &schedlock.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		require.NoError(t, err)
	}
	shown := func(owner, clock string) bool {
		_, row, _ := strings.Cut(s.page("/sessions"), "<bdi>"+owner+"</bdi>")
		row, _, _ = strings.Cut(row, "</tr>")
		return strings.Contains(row, clock)
	}
	require.Eventually(t, func() bool { return shown("fast-1", "ahead</td>") && shown("slow-1", "behind</td>") }, testkit.Soon, 100*time.Millisecond)
	require.True(t, shown("console", "<td>–</td>"))
}
