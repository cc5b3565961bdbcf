package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// The command and the console judge the clocks of processes by the same facts, and say of which of them they know nothing: that
// is no agreement.
func TestClocks(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(10 * 3600_000)
	agrees, ahead := fleet.Clock{Owner: "web-1", Measured: true, Lead: 1900}, fleet.Clock{Owner: "web-2", Measured: true, Lead: 5000}
	silent, behind := fleet.Clock{Owner: "web-3"}, fleet.Clock{Owner: "web-5", Measured: true, Lead: -15_000}
	late := fleet.Clock{Owner: "web-4", Beat: now.Add(-2 * time.Minute).UnixMilli()}
	for want, all := range map[string][]fleet.Clock{
		"OK no other session, whose clock could be compared":                                                    nil,
		"OK no clock differs by more than 2s, of 1 session":                                                     {agrees},
		"WARN the clock of web-2 is ahead of this machine's by 5s or more":                                      {agrees, ahead},
		"NOTE 1 clock is not known: of 2 sessions, 1 wrote nothing to compare in 2s":                            {agrees, silent},
		"WARN the clock of web-4 is behind this machine's by 1m0s or more, or it could not write for that long": {late, ahead, agrees},
		// A414: EtcdkitClocksDiffer takes it, and the doctor said that no clock differs
		"NOTE the clock of web-5 is behind this machine's by 15s, or etcd is slow": {agrees, behind},
	} {
		found := Clocks(all, now, "in 2s")
		require.Equal(t, want, string(found[0].Level)+" "+found[0].Text)
	}
	found := Clocks([]fleet.Clock{ahead, silent, silent}, now, "in 2s")
	require.Len(t, found, 2)
	require.Len(t, Clocks([]fleet.Clock{agrees, behind}, now, "in 2s"), 1, "and not that all agree")
	require.Equal(t, "2 clocks are not known: of 3 sessions, 2 wrote nothing to compare in 2s", found[1].Text, "also beside one that differs")
}
