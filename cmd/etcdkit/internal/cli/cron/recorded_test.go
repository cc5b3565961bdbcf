package cron

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
)

// A663: the guard has ended a command at the deadline, and the command exits with 0: it is not done.
func TestCommandThatItsGuardHasEnded(t *testing.T) {
	t.Parallel()
	x := guarded.Execution{Cut: true, Ended: true}
	require.EqualError(t, recorded(&x, nil), "the guard ended it: its time was over: exit code 0")
	require.Equal(t, &guarded.CutOff{By: byGuard}, x.End, "the end of the verb says that it was ended")
	for by, want := range map[string]string{"request": "ended, as etcdkit cron was stopped: exit code 0", bySignal: "ended by SIGTERM: exit code 0"} {
		x := guarded.Execution{Verb: "cron", Cut: true, Ended: by == "request", End: &guarded.CutOff{By: by}}
		require.EqualError(t, recorded(&x, nil), want)
	}
	x = guarded.Execution{Cut: true}
	require.NoError(t, recorded(&x, nil), "SIGTERM of the caller, and 0")
}
