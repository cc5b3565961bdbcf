package webguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/webguard"
)

// A page is reached at its hosts, at any port, and at no other.
func TestHosts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		host  string
		fine  bool
	}{
		{nil, "localhost", true}, {nil, "127.0.0.1:8080", true}, {nil, "[::1]:8080", true}, {nil, "LOCALHOST", true}, {nil, "ops.example.com", false},
		{[]string{"Ops.example.com"}, "ops.EXAMPLE.com:443", true}, {[]string{"ops.example.com"}, "localhost", false},
		{[]string{"ops.example.com"}, "ops.example.com.evil.example", false}, {nil, "localhost.", false}, {nil, "", false},
	} {
		hosts, err := webguard.NewHosts(tt.names)
		require.NoError(t, err)
		require.Equal(t, tt.fine, hosts.Refuse(tt.host) == nil, "%+v", tt)
	}
	for _, name := range []string{"", "a:1", "*.example.com", "::1", "[x]", "a b", "a."} {
		_, err := webguard.NewHosts([]string{name})
		require.Error(t, err, name)
	}
}
