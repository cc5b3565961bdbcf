package output

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrapped(t *testing.T) {
	t.Parallel()
	require.Empty(t, Wrapped("", 40))
	require.Equal(t, []string{strings.Repeat("word ", 30)}, Wrapped(strings.Repeat("word ", 30), -6), "no terminal")
	require.Equal(t, []string{"a text of seven words", "and one more"}, Wrapped("a text of seven words and one more", 21))
	require.Equal(t, []string{"short", strings.Repeat("x", 30), "rest"}, Wrapped("short "+strings.Repeat("x", 30)+" rest", 20))
}
