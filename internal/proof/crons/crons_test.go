package crons

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones are the same on all machines

	"github.com/stretchr/testify/require"
)

var raw = flag.String("raw", "", "write plans.txt from what cronie/generate.sh has written to this directory")

// The plans have all lines in all zones, and are what was read.
func TestPlans(t *testing.T) {
	t.Parallel()
	require.Len(t, Lines(), 30)
	require.Len(t, Zones, 16)
	if *raw != "" {
		write(t)
		return
	}
	n := 0
	for _, zone := range Zones {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		windows := Windows(loc)
		all, err := Plans(zone, windows)
		require.NoError(t, err)
		for i, p := range all {
			require.Equal(t, Lines()[i], p.Line)
			require.Contains(t, plans, p.String(windows)+"\n")
			n++
		}
	}
	require.Equal(t, 30*16, n)
}

// write writes plans.txt.
func write(t *testing.T) {
	var text strings.Builder
	for _, zone := range Zones {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		windows := Windows(loc)
		f, err := os.Open(filepath.Join(*raw, strings.ReplaceAll(zone, "/", "-")))
		require.NoError(t, err)
		fires := make([][]time.Time, len(Lines()))
		for s := bufio.NewScanner(f); s.Scan(); {
			var line int
			var unix int64
			_, err := fmt.Sscan(s.Text(), &line, &unix)
			require.NoError(t, err)
			at := time.Unix(unix, 0).Truncate(time.Minute)
			if !at.Before(Begin) && at.Before(End) {
				fires[line-1] = append(fires[line-1], at)
			}
		}
		require.NoError(t, f.Close())
		for i, line := range Lines() {
			all := slices.CompactFunc(fires[i], time.Time.Equal)
			fmt.Fprintln(&text, NewPlan(zone, line, windows, all).String(windows))
		}
	}
	require.NoError(t, os.WriteFile("plans.txt", []byte(text.String()), 0o600))
}
