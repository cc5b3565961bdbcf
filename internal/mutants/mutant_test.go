package mutants

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every patch fits the product as it is. That what it makes compiles is seen by `make
// mutants`.
func TestPatchesFit(t *testing.T) {
	t.Parallel()
	all, err := All()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 14)
	for _, m := range all {
		overlay, err := m.Overlay("../..", t.TempDir())
		require.NoError(t, err)
		b, err := os.ReadFile(overlay)
		require.NoError(t, err)
		var o struct{ Replace map[string]string }
		require.NoError(t, json.Unmarshal(b, &o))
		require.NotEmpty(t, o.Replace)
		for was, is := range o.Replace {
			before, err := os.ReadFile(was)
			require.NoError(t, err)
			after, err := os.ReadFile(is)
			require.NoError(t, err)
			require.NotEqual(t, string(before), string(after))
			_, err = parser.ParseFile(token.NewFileSet(), is, nil, 0)
			require.NoError(t, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	const diff = "\ndiff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parse("m", []byte("Rule: r\nId: M1\nChaos: 3 20\nKiller: store\n"+diff))
	require.NoError(t, err)
	require.Equal(t, 3, m.Seeds)
	require.Equal(t, "20s", m.For.String())
	for _, bad := range []string{
		"Rule: r\nId: M1\n", "Id: M1\nTest: ./x TestX\n", "Rule: r\nId: M1\nTest: ./x\n", "Rule: r\nId: M1\nChaos: 3 20\n",
		"Rule: r\nId: M1\nChaos: 3 20\nKiller: store\nTest: ./x TestX\n", "Rule: r\nId: M1\nTest: ./x TestX\nWhat: else\n",
	} {
		_, err := parse("m", []byte(bad+diff))
		require.Error(t, err, bad)
	}
	_, err = parse("m", []byte("Rule: r\nId: M1\nTest: ./x TestX\n"))
	require.Error(t, err, "it changes nothing")
}
