package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is missing is named as the usage calls it.
func TestArguments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for want, args := range map[string][]string{
		"etcdkit show: NAME is missing\n":              {"show"},
		`etcdkit ls: "charge" is an argument too many`: {"ls", "charge"},
		"etcdkit evict: TOKEN is missing\n":            {"evict", "charge", "--reason", "x"},
		"etcdkit run: NAME is missing\n":               {"run", "--", "true"},
		"etcdkit run: COMMAND is missing\n":            {"run", "charge"},
		"etcdkit run: COMMAND is missing \n":           {"run", "charge", "--"},
		`etcdkit limit: "5" is an argument too many`:   {"limit", "charge", "4", "5"},
		"etcdkit requests get: REF is missing\n":       {"requests", "get", "orders"},
	} {
		r := f.run(args...)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, strings.ReplaceAll(want, " \n", "\n"))
		require.Contains(t, r.err, "Usage: etcdkit "+args[0])
	}
}
