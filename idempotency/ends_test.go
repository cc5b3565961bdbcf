package idempotency

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAfterError(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	says := func(a Action) func(error) Action { return func(error) Action { return a } }
	for _, c := range []struct {
		name             string
		err              error
		onError          Action
		takeOver, refuse Action
	}{
		{"an error", no, DefaultAction, Forget, Abandon},
		{"OnError forgets", no, Forget, Forget, Abandon},
		{"OnError remembers", no, Remember, Remember, Remember},
		{"OnError abandons", no, Abandon, Abandon, Abandon},
		{"nothing done", NothingDone(no), DefaultAction, Forget, Forget},
		{"nothing done, against OnError", NothingDone(no), Remember, Forget, Forget},
		{"nothing done, by a callee", fmt.Errorf("notify: %w", NothingDone(no)), DefaultAction, Forget, Abandon},
		{"nothing done, joined", errors.Join(NothingDone(no), no), DefaultAction, Forget, Abandon},
		{"permanent", Permanent(no), Forget, Remember, Remember},
		{"permanent, by a callee", fmt.Errorf("charge: %w", Permanent(no)), DefaultAction, Remember, Remember},
		{"a failure that is replayed", fmt.Errorf("charge: %w", errors.Join(&FailedError{Outcome: &Outcome{Failure: "no"}}, no)), DefaultAction, Remember, Remember},
		{"both", NothingDone(fmt.Errorf("charge: %w", Permanent(no))), DefaultAction, Remember, Remember},
		{"both, the other way round", Permanent(NothingDone(no)), DefaultAction, Remember, Remember},
		{"nothing done, twice", NothingDone(NothingDone(no)), DefaultAction, Forget, Forget},
		{"permanent, beside nothing done", errors.Join(NothingDone(no), Permanent(no)), DefaultAction, Remember, Remember},
		{"OnError says what is no Action", no, Action(17), Action(17), Action(17)},
		{"permanent, deep", NothingDone(fmt.Errorf("a: %w", NothingDone(fmt.Errorf("b: %w", Permanent(no))))), DefaultAction, Remember, Remember},
	} {
		require.Equal(t, c.takeOver, afterError(c.err, says(c.onError), false), c.name)
		require.Equal(t, c.refuse, afterError(c.err, says(c.onError), true), c.name)
		require.ErrorIs(t, c.err, no)
	}
	require.NoError(t, NothingDone(nil))
	require.NoError(t, Permanent(nil))
	require.EqualError(t, NothingDone(Permanent(no)), "no")
}
