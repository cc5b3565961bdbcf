package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrust(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		trust trust
		now   time.Duration
		step  step
		again time.Duration
	}{
		"trusted":                             {trust{grace: 2 * s, until: 100 * s}, 50 * s, leave, 100 * s},
		"the deadline":                        {trust{grace: 2 * s, until: 100 * s}, 100 * s, terminate, 102 * s},
		"in the grace":                        {trust{grace: 2 * s, until: 100 * s}, 101 * s, terminate, 102 * s},
		"the end of the grace":                {trust{grace: 2 * s, until: 100 * s}, 102 * s, kill, 102 * s},
		"no grace":                            {trust{until: 100 * s}, 100 * s, kill, 100 * s},
		"asked to stop":                       {trust{grace: 2 * s, until: 100 * s, stop: 50 * s}, 50 * s, terminate, 52 * s},
		"asked, and the grace has passed":     {trust{grace: 2 * s, until: 100 * s, stop: 50 * s}, 52 * s, kill, 52 * s},
		"asked just before the deadline":      {trust{grace: 2 * s, until: 100 * s, stop: 99 * s}, 101 * s, kill, 101 * s},
		"asked after the deadline":            {trust{grace: 2 * s, until: 100 * s, stop: 101 * s}, 102 * s, kill, 102 * s},
		"the front process is gone":           {trust{grace: 2 * s, until: 100 * s, gone: true}, 50 * s, kill, 50 * s},
		"resumed long after the deadline":     {trust{grace: 2 * s, until: 100 * s}, 900 * s, kill, 900 * s},
		"never trusted (no deadline was set)": {trust{grace: 2 * s}, 1 * s, terminate, 2 * s},
	} {
		did, again := c.trust.at(c.now)
		require.Equal(t, c.step, did, name)
		require.Equal(t, c.again, again, name)
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, 7, Status{Code: 7}.ExitCode())
	require.Equal(t, 143, Status{Signal: 15}.ExitCode())
}
