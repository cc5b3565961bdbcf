package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an operator has changed is stored in this form, and a value that is not is no change.
func TestChange(t *testing.T) {
	t.Parallel()
	c := Change{AtMS: 7, By: "ada", Verb: "set-limit", Name: "semaphore/charge", Before: "2", After: "7", Reason: "Black Friday", Open: true}
	require.JSONEq(t, `{"v":1,"at":7,"by":"ada","verb":"set-limit","name":"semaphore/charge","before":"2","after":"7","reason":"Black Friday","open":true}`, c.Encode())
	got, ok := DecodeChange([]byte(c.Encode()))
	require.True(t, ok)
	c.header = got.header
	require.Equal(t, c, got)
	c.Reason = strings.Repeat("x", 1<<20)
	require.Less(t, len(c.Encode()), MaxSize, "a text that is too long is cut")
	c.Queues = []string{strings.Repeat("x", MaxText), "y"}
	got, _ = DecodeChange([]byte(c.Encode()))
	require.Equal(t, c.Queues[:1], got.Queues)
	for _, value := range []string{"", "x", `{"v":2,"at":7}`, `{"at":7}`, "[]", strings.Repeat(" ", MaxSize) + c.Encode()} {
		_, ok := DecodeChange([]byte(value))
		require.False(t, ok, "%.20q", value)
	}
}
