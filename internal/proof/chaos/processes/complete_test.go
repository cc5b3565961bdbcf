package processes

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A225: a run continues while it lacks what it must contain, and for as long again at most.
func TestRunContinues(t *testing.T) {
	t.Parallel()
	bad := errors.New("unreadable")
	for name, tt := range map[string]struct {
		length time.Duration
		lacks  int // looks that find something missing
		err    error
		want   []time.Duration
	}{
		"nothing is missing":   {length: time.Minute, want: []time.Duration{time.Minute}},
		"once":                 {length: time.Minute, lacks: 1, want: []time.Duration{time.Minute, part}},
		"to the end":           {length: 40 * time.Second, lacks: 9, want: []time.Duration{40 * time.Second, part, 10 * time.Second}},
		"a short run":          {length: time.Second, lacks: 9, want: []time.Duration{time.Second, time.Second}},
		"an unreadable record": {length: time.Minute, lacks: 9, err: bad, want: []time.Duration{time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var strikes []time.Duration
			err := extend(tt.length, func() (missing []string, err error) {
				if tt.lacks >= len(strikes) {
					missing = []string{attemptsKilled}
				}
				return missing, tt.err
			}, func(length time.Duration, missing []string) {
				require.Equal(t, len(strikes) > 0, len(missing) > 0)
				strikes = append(strikes, length)
			})
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.want, strikes)
		})
	}
}
