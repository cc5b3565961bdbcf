package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// N1: what a process knows of the weight in a queue is never less than what there is: else one Txn would
// write both requests of a call that is not admitted at its key.
func TestFillingIsNeverTooLow(t *testing.T) {
	t.Parallel()
	var f filling
	f.saw(10, 2) // tokens 5 and 10
	sent := f.rev
	f.gone(5, 1, sent)
	require.Equal(t, filling{10, 1}, f, "it was removed after 10")
	f.gone(11, 1, sent)
	require.Equal(t, filling{10, 1}, f, "it came after 10")

	// 10 is removed at 12; before the process has the answer, 13 comes and counts one.
	sent = f.rev
	f.saw(13, 1)
	f.gone(10, 1, sent)
	require.Equal(t, filling{13, 1}, f, "13 is still there")
	f.saw(12, 7)
	require.Equal(t, filling{13, 1}, f, "an answer that comes late")
}
