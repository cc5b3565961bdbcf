package ports_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/ports"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	addr, release, err := ports.Reserve()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(addr, "127.0.0.1:"))
	_, err = net.Listen("tcp4", addr)
	require.Error(t, err)
	require.Equal(t, !ports.Held, ports.Taken(err))
	release()
	l, err := net.Listen("tcp4", addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
