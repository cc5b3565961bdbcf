package etcdfake

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/version"
)

// fatal is a test that stops where it fails.
type fatal struct{ text string }

func (*fatal) Helper()              {}
func (*fatal) Cleanup(func())       {}
func (*fatal) Skipf(string, ...any) {}
func (r *fatal) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	panic(r)
}

// A client of another line is refused in a bubble, with what to do, and works outside of one.
func TestClientIsOfAKnownLine(t *testing.T) {
	t.Parallel()
	require.True(t, known(version.Version), "see bubble.go: does a bubble's time pass with a watch of this client?")
	for client, ok := range map[string]bool{"3.6.0": true, "3.6.16": true, "3.7.3": true, "3.60.0": false, "3.8.0-rc.0": false, "3.5.35": false, "": false} {
		require.Equal(t, ok, known(client), client)
		check := func() (text string) {
			var r fatal
			defer func() { _ = recover(); text = r.text }()
			checkBubble(&r, client)
			return ""
		}
		require.Empty(t, check(), "outside of a bubble")
		synctest.Test(t, func(t *testing.T) {
			if text := check(); ok {
				require.Empty(t, text)
			} else {
				require.Contains(t, text, "etcd's client has version "+client+", ")
				require.Contains(t, text, "require go.etcd.io/etcd/client/v3 of 3.6 or 3.7")
				require.Contains(t, text, "outside of a bubble")
			}
		})
	}
}
