package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		token int64
		found bool // by a later read
		err   error
		want  outcome
	}{
		{8, false, nil, written},
		{7, false, nil, rewound}, // as great as the greatest that was met before
		{5, false, nil, rewound},
		{8, true, nil, written},
		{7, true, nil, written}, // an earlier Txn has written it, and more was met since
		{5, true, nil, written}, // the earliest that may have
		{4, true, nil, rewound},
		{0, false, nil, refused},
		{0, true, nil, refused},
		{0, false, commit.ErrOccupied, occupied},
		{0, false, fmt.Errorf("create: %w", commit.ErrGone), gone},
		{0, false, &commit.PendingError{}, unsettled},
		{9, false, &commit.PendingError{}, unsettled},
		{9, true, &commit.PendingError{}, unsettled},
		{0, false, errors.New("denied"), failed},
	} {
		res := commit.Result{Token: c.token}
		if !c.found {
			res.Read = []*etcdserverpb.ResponseOp{}
		}
		require.Equal(t, c.want, outcomeOf(res, c.err, 7, 5), "%d, found: %t, %T", c.token, c.found, c.err)
	}
}

func TestAfterRefusal(t *testing.T) {
	t.Parallel()
	ours, held := &oursError{&InUse{}}, &InUse{}
	for _, c := range []struct {
		reason               error
		bounded, conditional bool
		want                 step
	}{
		{nil, false, false, again},
		{nil, true, true, again},
		{errRefused, false, false, again}, // what was in the way is gone
		{errRefused, true, false, again},
		{errRefused, true, true, fail}, // the caller looks again
		{ours, false, false, wait},
		{ours, true, false, fail}, // the caller waits, with the others in its way
		{ours, true, true, fail},
		{held, false, false, fail},
		{errors.New("no answer"), false, false, fail},
	} {
		require.Equal(t, c.want, afterRefusal(c.reason, c.bounded, c.conditional), "%v, %t, %t", c.reason, c.bounded, c.conditional)
	}
}

func TestProspect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    prospect
		want step
	}{
		"room":                                     {prospect{answer: rank.Enter, weight: 1, free: 1}, writeIf},
		"room, other requests come":                {prospect{answer: rank.Enter, weight: 1, free: 7, overtaken: true}, again},
		"room, others come, the last optimistic":   {prospect{answer: rank.Enter, weight: 1, free: 1, round: optimistic - 1}, writeIf},
		"room, others keep coming":                 {prospect{answer: rank.Enter, weight: 1, free: 1, round: optimistic}, writeAnyway},
		"ample room, other requests come":          {prospect{answer: rank.Enter, weight: 1, free: 8, overtaken: true}, writeAnyway},
		"ample room for one, but not for a weight": {prospect{answer: rank.Enter, weight: 2, free: 15, overtaken: true}, again},
		"room, where calls contend":                {prospect{answer: rank.Enter, weight: 1, free: 1, contended: true}, writeAnyway},
		"no room, where calls contend":             {prospect{answer: rank.Refuse, weight: 1, contended: true}, fail},
		"no room":                                  {prospect{answer: rank.Refuse, weight: 1}, fail},
		"no room, long since":                      {prospect{answer: rank.Refuse, weight: 1, waited: time.Hour}, fail},
		"tries are in the way":                     {prospect{answer: rank.Unclear, weight: 1, waited: patience}, wait},
		"tries are in the way for long":            {prospect{answer: rank.Unclear, weight: 1, waited: patience + 1}, fail},
		"the ID is about to be free":               {prospect{answer: rank.Enter, weight: 1, free: 9, ours: true}, wait},
		"the ID is about to be free, no room":      {prospect{answer: rank.Refuse, weight: 1, ours: true}, wait},
		"the ID is about to be free for long":      {prospect{answer: rank.Enter, weight: 1, ours: true, waited: patience + 1}, fail},
	} {
		require.Equal(t, c.want, c.p.next(), name)
	}
}
