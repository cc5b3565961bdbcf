package output

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A message waits for its reader, and nothing waits for the message.
func TestMessages(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	m := NewMessages(&got)
	_, _ = io.WriteString(m, "one\n")
	_, _ = io.WriteString(m, "two\n")
	m.Close()
	_, _ = io.WriteString(m, "late\n")
	require.Equal(t, "one\ntwo\n", got.String())

	read, write := io.Pipe()
	m = NewMessages(write)
	for range 2 * mostMessages {
		n, err := io.WriteString(m, "text\n")
		require.NoError(t, err)
		require.Equal(t, 5, n)
	}
	m.Close() // it gives up
	all := make(chan string)
	go func() { text, _ := io.ReadAll(read); all <- string(text) }()
	<-m.done
	require.NoError(t, write.Close())
	lines := strings.Count(<-all, "text\n")
	require.GreaterOrEqual(t, lines, mostMessages)
	require.LessOrEqual(t, lines, mostMessages+1, "and the one that was being written")
}
