package idempotency

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// What an operator says is recorded for a lost attempt; in place of what an operator has said, if the caller has looked
// at that; never in place of what a function has done; and nothing is taken back to NotDone.
func TestResolves(t *testing.T) {
	t.Parallel()
	done, failed, not := WasDone(nil), HasFailed("x"), NotDone()
	all := []Resolution{done, failed, not}
	for name, c := range map[string]struct {
		rec    record.Attempt
		bad    bool
		looked []Resolution // those that are recorded with OnlyRevision
		blind  []Resolution // those that are recorded without
	}{
		"lost":                     {rec: record.Attempt{State: record.AttemptWorking}, looked: all, blind: all},
		"done by a function":       {rec: record.Attempt{State: record.AttemptDone}},
		"failed by a function":     {rec: record.Attempt{State: record.AttemptFailed}},
		"released by a function":   {rec: record.Attempt{State: record.AttemptReleased}},
		"done, says an operator":   {rec: record.Attempt{State: record.AttemptDone, By: "ada"}, looked: []Resolution{done, failed}},
		"failed, says an operator": {rec: record.Attempt{State: record.AttemptFailed, By: "ada"}, looked: []Resolution{done, failed}},
		"not done, says an operator, and nothing has begun since": {rec: record.Attempt{State: record.AttemptReleased, By: "ada"}, looked: []Resolution{done, failed}},
		"unreadable": {bad: true},
	} {
		st := state{kv: &mvccpb.KeyValue{ModRevision: 7}, rec: c.rec, bad: c.bad}
		for _, what := range all {
			for _, call := range []struct {
				opts     []ChangeOption
				recorded []Resolution
			}{{[]ChangeOption{OnlyRevision(7)}, c.looked}, {nil, c.blind}} {
				var chosen change
				require.NoError(t, engine.Apply(call.opts, &chosen))
				switch err := chosen.resolves(what, st); {
				case c.bad:
					require.ErrorIs(t, err, ErrUnreadable)
				case slices.ContainsFunc(call.recorded, func(r Resolution) bool { return r.state == what.state }):
					require.NoError(t, err, "%s, resolved as %s", name, what.state)
				default:
					require.ErrorIs(t, err, ErrConflict, "%s, resolved as %s", name, what.state)
				}
			}
		}
	}
}
