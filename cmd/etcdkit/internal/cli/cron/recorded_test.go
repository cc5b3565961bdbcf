package cron

import (
	"errors"
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

// A663: a line of a crontab that the guard has ended at the deadline, while etcdkit cron was slow, was not ended by SIGTERM; nor
// was one whose run is lost, or that etcdkit cron has ended itself.
func TestCommandThatGotSIGTERM(t *testing.T) {
	t.Parallel()
	own := &guarded.CutOff{By: "request"}
	for name, c := range map[string]struct {
		x    guarded.Execution
		lost error
		end  *guarded.CutOff
		err  string
	}{
		"SIGTERM":         {guarded.Execution{Cut: true}, nil, &guarded.CutOff{By: bySignal}, "ended by SIGTERM: exit code 0"},
		"the guard":       {guarded.Execution{Cut: true, Ended: true}, nil, &guarded.CutOff{By: byGuard}, "the guard ended it: its time was over: exit code 0"},
		"the own request": {guarded.Execution{Verb: "cron", Cut: true, Ended: true, End: own}, nil, own, "ended, as etcdkit cron was stopped: exit code 0"},
		"a lost run":      {guarded.Execution{Cut: true}, errors.New("lost"), nil, ""},
		"itself":          {guarded.Execution{}, nil, nil, ""},
	} {
		cutBySignal(&c.x, c.lost)
		err := recorded(&c.x, nil)
		require.Equal(t, c.end, c.x.End, name)
		if c.err == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, c.err, name)
		}
	}
}
