package output

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A terminal shows the first rows, and no line is broken.
func TestTopFitsTheTerminal(t *testing.T) {
	t.Parallel()
	const table = "title\nhead\none öne\ntwo\nthree\n"
	require.Equal(t, table, string(Fit([]byte(table), 0, 0)), "of a size that is not known")
	require.Equal(t, table, string(Fit([]byte(table), 7, 6)))
	require.Equal(t, "title\nhead\none ö\nand 2\n", string(Fit([]byte(table), 5, 5)))
	require.Equal(t, 4, strings.Count(string(Fit([]byte(table), 80, 5)), "\n"), "and the line of the cursor")
	require.Contains(t, string(Fit([]byte(table), 80, 5)), "one öne\nand 2 lines more")
}
