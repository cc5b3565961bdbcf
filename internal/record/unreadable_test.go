package record

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A later version is known by its first line, whatever else the value is, and nothing of the value is used.
func TestLater(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{
		`{"v":1,"limit":3}`: 0, `{"v":2,"limit":3}`: 2, `{"v":10}`: 10, "{\"v\":3,\"state\":\"new\"}\n\xff": 3,
		"": 0, "x": 0, `{"v":"2"}`: 0, `{"v":-1}`: 0, `{"v":0}`: 0, `{}`: 0, `[2]`: 0,
	} {
		require.Equal(t, want, Later([]byte(value)), value)
	}
	r, ok := DecodeLimit([]byte(`{"v":2,"limit":3}`))
	require.False(t, ok)
	require.Zero(t, r)
	a, ok := DecodeAttempt([]byte("{\"v\":2,\"state\":\"done\",\"attempt\":1}\n"))
	require.False(t, ok)
	require.Zero(t, a)
	require.EqualError(t, Why("/k", []byte(`{"v":2}`)), "the value of /k is of a later release: it has version 2, and this release reads version 1")
	require.EqualError(t, Why("/k", []byte(`{}`)), "the value of /k is damaged: it is no record of etcdkit")
}

// The values of later versions, as etcdkit writes values, are those in the range, which a Txn compares.
func TestLaterRange(t *testing.T) {
	t.Parallel()
	from, end := LaterRange()
	in := func(value string) bool { return value > from && value < end }
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.IntRange(0, 300).Draw(t, "version")
		text, err := json.Marshal(rapid.String().Draw(t, "text"))
		require.NoError(t, err)
		value := fmt.Sprintf(`{"v":%d,"x":%s}`, version, text)
		require.Equal(t, version > 1, in(value), value)
		require.Equal(t, in(value), Later([]byte(value)) > 0)
	})
	for _, value := range []string{"", "x", `{}`, `{"v":1,"x":2}`, `{"v":"2"}`, `{"v":null}`} {
		require.False(t, in(value), value)
	}
}
