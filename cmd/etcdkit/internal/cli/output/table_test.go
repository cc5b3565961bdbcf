package output

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullDisk fails as a file on a full disk does: a write of nothing succeeds.
type fullDisk struct{}

func (fullDisk) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return 0, syscall.ENOSPC
}

// No write of a table is lost: a tabwriter flushes a line at once, and forgets that it could not be written.
func TestTableThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*Table){
		"a row":            func(t *Table) { t.Row("a", "b") },
		"a line":           func(t *Table) { t.Line("a") },
		"a line, then row": func(t *Table) { t.Line("a"); t.Row("a", "b") },
		"rows, then a line": func(t *Table) {
			t.Row("a", "b")
			t.Row("c", "d")
			t.Line("e")
		},
	} {
		table := NewTable(fullDisk{})
		write(table)
		require.ErrorIs(t, table.Flush(), syscall.ENOSPC, name)
	}
}

// A list that has nothing is [], also where a verb has none.
func TestJSONOfNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, JSON(&out, struct {
		Rows []string `json:"rows"`
	}{}))
	require.Equal(t, `{"rows":[]}`+"\n", out.String())
}
