package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/etcdflags"
)

// Each variable is one of etcdctl's or starts with ETCDKIT_.
func TestEveryGlobalFlagHasAVariable(t *testing.T) {
	t.Parallel()
	root := (&execution{}).root()
	for name := range etcdflags.Names {
		require.NotNil(t, root.PersistentFlags().Lookup(name), name)
		require.True(t, strings.HasPrefix(verb.Variable(name), "ETCDCTL_"), name)
	}
	for name := range verb.Ours {
		require.NotNil(t, root.PersistentFlags().Lookup(name), name)
	}
}
