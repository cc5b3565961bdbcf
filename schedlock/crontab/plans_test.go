package crontab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A year of fire times in UTC is that of robfig/cron v3.0.1, which the module integration holds to the same file. Lines that
// robfig/cron takes for something else are left out of it: TestRobfigPlans names them. -short leaves out lines that fire more
// often than each hour.
func TestPlansOfRobfig(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/robfig-utc.txt")
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		spec, want, ok := strings.Cut(strings.TrimSpace(line), "\t")
		require.True(t, ok, line)
		n++
		if often, err := strconv.Atoi(strings.Split(want, "\t")[0]); testing.Short() && err == nil && often > hourly {
			continue
		}
		s := parsed(t, spec, time.UTC)
		sum, fires := sha256.New(), 0
		for at := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); !at.IsZero() && at.Year() == 2026; at = s.Next(at) {
			fmt.Fprintln(sum, at.Unix())
			fires++
		}
		require.Equal(t, want, fmt.Sprintf("%d\t%s", fires, hex.EncodeToString(sum.Sum(nil)[:8])), spec)
	}
	require.Greater(t, n, 25)
}
