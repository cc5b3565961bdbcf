package output

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
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

// What is written for people steers no terminal, whatever writes it: a logger escapes less.
func TestLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	Logger(Lines{&out}, zap.WarnLevel).Warn("refused \x1b[2J", zap.String("owner", "web-7\u009b31m\u202e\x7f"))
	require.Contains(t, out.String(), "\twarn\t")
	require.True(t, strings.HasSuffix(out.String(), "\n"))
	require.False(t, strings.ContainsAny(out.String(), "\x1b\u009b\u202e\x7f"), "%q", out.String())
	out.Reset()
	n, err := io.WriteString(Lines{&out}, "one  two\n\nthree")
	require.NoError(t, err)
	require.Equal(t, 15, n)
	require.Equal(t, "one  two\n\nthree", out.String())
}

// JSON has the same values for its readers, and steers no terminal that it is shown on.
func TestJSONIsVisible(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	const text = "a\x1b\n\u009b\u202e\x7f\u3164\U000e0041 größer <&>"
	require.NoError(t, JSON(&out, []string{text}))
	require.Equal(t, `["a\u001b\n\u009b\u202e\u007f\u3164\udb40\udc41 größer <&>"]`+"\n", out.String())
	var back []string
	require.NoError(t, json.Unmarshal([]byte(out.String()), &back))
	require.Equal(t, []string{text}, back)
}
