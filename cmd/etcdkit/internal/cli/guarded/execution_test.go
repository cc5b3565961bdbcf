package guarded

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
)

// A loss that comes after the command has ended has ended nothing.
func TestOver(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]*CutOff{"the command had ended by itself": nil, "the command was ended": {By: "lost"}} {
		err := (&Execution{End: end}).Over(exit.Lost, concurrency.ErrLost)
		require.ErrorContains(t, err, want)
		require.Equal(t, exit.Lost, exit.CodeOf(err))
	}
}
