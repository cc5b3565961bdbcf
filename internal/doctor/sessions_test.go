package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A796: the versions of processes are said as far as they are known. Several are no fault.
func TestSessions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	say := func(versions ...string) string {
		var s Sessions
		for i, v := range versions {
			s.Add("web-"+string(rune('1'+i)), now.Add(-time.Duration(10-i)*time.Second), v)
		}
		found := s.Findings(now)
		require.Len(t, found, 1)
		require.Equal(t, len(versions) == 0, found[0].Level == Warn)
		return found[0].Text
	}
	require.Equal(t, "no live session", say())
	require.Equal(t, "1 live session, the oldest by web-1 for 10s", say(""))
	require.Equal(t, "2 live sessions, the oldest by web-1 for 10s; etcdkit v0.1.0", say("v0.1.0", "v0.1.0"))
	require.Equal(t, "4 live sessions, the oldest by web-1 for 10s; etcdkit v0.1.0 (1), v0.2.0 (2), not known (1)", say("v0.2.0", "v0.1.0", "", "v0.2.0"))
	require.Equal(t, "7 live sessions, the oldest by web-1 for 10s; etcdkit v0 (1), v1 (1), v2 (1), v3 (1), v4 (1), 2 more", say("v0", "v1", "v2", "v3", "v4", "v5", "v6"))
	var strange Sessions
	strange.Add("web-1", time.Time{}, "")
	strange.Add("web-2", now.Add(time.Hour), "")
	require.Equal(t, "2 live sessions, the oldest by web-2 for 0s", strange.Findings(now)[0].Text, "the first has no time, the clock of the other is ahead")
}
