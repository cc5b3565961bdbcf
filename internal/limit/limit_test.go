package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

func TestAgrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored Limit
		n      int64
		agrees bool
	}{
		{Limit{N: 5}, 5, true},
		{Limit{N: 5}, 6, false},
		{Limit{N: 5}, 4, false},
		{Limit{N: 0}, 6, true}, // paused
		{Limit{N: 0, Initial: true}, 6, false},
		{Limit{N: 0, Initial: true}, 0, true},
	} {
		require.Equal(t, c.agrees, c.stored.Agrees(c.n), c)
	}
}

// own are the records of a queue that has a limit of its own.
func own(r record.Limit) mirror.Limits {
	return mirror.Limits{Own: mirror.LimitRecord{Limit: r, Rev: 60}}
}

// One row for each state of the stored limit that a change may find.
func TestChange(t *testing.T) {
	t.Parallel()
	stored := func(n int64, r record.Limit) mirror.View {
		r.Limit = n
		return mirror.View{Known: true, Limit: n, Limits: own(r), Through: 70}
	}
	for name, c := range map[string]struct {
		v      mirror.View
		n      int64
		want   record.Limit
		lowers bool
	}{
		"none":               {mirror.View{}, 5, record.Limit{Limit: 5, Settled: true}, false},
		"none, but requests": {mirror.View{Through: 70}, 5, record.Limit{Limit: 5, Through: 70, Settled: true}, false},
		"raised":             {stored(3, record.Limit{}), 5, record.Limit{Limit: 5, Through: 70, Settled: true}, false},
		"the same":           {stored(5, record.Limit{}), 5, record.Limit{Limit: 5, Through: 70, Settled: true}, false},
		"lowered":            {stored(9, record.Limit{}), 5, record.Limit{Limit: 5, Through: 70, Previous: 9}, true},
		"lowered again, settled": {
			stored(9, record.Limit{Previous: 12, Settled: true}), 5, record.Limit{Limit: 5, Through: 70, Previous: 9}, true},
		"lowered again, unsettled: the greatest is handed on": {
			stored(9, record.Limit{Previous: 12}), 5, record.Limit{Limit: 5, Through: 70, Previous: 12}, true},
		"raised, unsettled: handed on": {
			stored(3, record.Limit{Previous: 12}), 5, record.Limit{Limit: 5, Through: 70, Previous: 12}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, lowers := change(c.v, c.n)
			require.Equal(t, c.want, r)
			require.Equal(t, c.lowers, lowers)
		})
	}
}

// One row for each state of the stored default that a change may find. Previous falls to 0 only when
// every request that a former default admitted fits the new one.
func TestChangeBase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from record.Limit
		n    int64
		want record.Limit
	}{
		"none":                            {record.Limit{}, 5, record.Limit{Limit: 5, Settled: true}},
		"raised":                          {record.Limit{Limit: 3}, 5, record.Limit{Limit: 5, Settled: true}},
		"the same":                        {record.Limit{Limit: 5}, 5, record.Limit{Limit: 5, Settled: true}},
		"lowered":                         {record.Limit{Limit: 9, Settled: true}, 5, record.Limit{Limit: 5, Previous: 9}},
		"lowered again":                   {record.Limit{Limit: 9, Previous: 12}, 5, record.Limit{Limit: 5, Previous: 12}},
		"raised, below the greatest":      {record.Limit{Limit: 3, Previous: 12}, 5, record.Limit{Limit: 5, Previous: 12}},
		"raised to the greatest":          {record.Limit{Limit: 3, Previous: 12}, 12, record.Limit{Limit: 12, Settled: true}},
		"paused":                          {record.Limit{Limit: 3}, 0, record.Limit{Previous: 3}},
		"of a program that was the first": {record.Limit{Limit: 3, Initial: true, Settled: true}, 2, record.Limit{Limit: 2, Previous: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, changeBase(c.from, c.n))
		})
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	lowered := record.Limit{Limit: 5, Through: 70, Previous: 9, By: "b", AtMS: 3}
	exact := lowered
	exact.Settled, exact.Through = true, 80
	same := lowered
	same.Settled = true
	for name, c := range map[string]struct {
		before mirror.View
		want   record.Limit
		ok     bool
	}{
		"more were admitted": {mirror.View{Known: true, Through: 80}, exact, true},
		"no more were":       {mirror.View{Known: true, Through: 60}, same, true},
		"no limit before":    {mirror.View{Through: 80}, lowered, false},
		"unsettled before":   {mirror.View{Known: true, Through: 80, Limits: own(record.Limit{Previous: 12})}, lowered, false},
		"settled before":     {mirror.View{Known: true, Through: 80, Limits: own(record.Limit{Previous: 12, Settled: true})}, exact, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ok := settled(lowered, 60, c.before)
			require.Equal(t, c.want, r)
			require.Equal(t, c.ok, ok)
		})
	}
}

// A520: a rate whose record is stored again has requests weigh what they did, by the revision of the change.
func TestRateIsStoredAgain(t *testing.T) {
	t.Parallel()
	lowered := record.Limit{Limit: 5, Previous: 9, Rate: record.Rate{PerSecond: 5, Burst: 5, Former: 3}}
	exact, ok := settled(lowered, 60, mirror.View{Known: true})
	require.True(t, ok)
	require.Equal(t, record.Rate{PerSecond: 5, Burst: 5, Former: 3, Before: 60}, exact.Rate)
	require.Equal(t, exact.Rate, exact.Rate.StoredAt(70), "and once more")
	require.Equal(t, record.Rate{PerSecond: 5, Burst: 5}, record.Rate{PerSecond: 5, Burst: 5}.StoredAt(70), "all weigh one")
}

// A limit is remembered by its revision and value; an older one does not replace a newer one.
func TestLearn(t *testing.T) {
	t.Parallel()
	met := []int64{}
	s := &Store{See: func(revision int64) { met = append(met, revision) }}
	kv := func(n, revision int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Value: []byte(record.Limit{Limit: n, Nonce: "n"}.Encode()), ModRevision: revision}
	}
	for _, c := range []struct{ n, revision, seen int64 }{{5, 10, 5}, {5, 10, 5}, {7, 12, 7}, {5, 10, 7}, {8, 12, 7}} {
		l, _, err := s.Learn(Records{Own: kv(c.n, c.revision)})
		require.NoError(t, err)
		require.Equal(t, c.n, l.N, "it is what was read, whatever was seen")
		require.Equal(t, c.seen, s.Seen().N)
	}
	require.Equal(t, []int64{10, 12, 10, 12}, met, "decoded once")
	_, _, err := s.Learn(Records{Own: &mvccpb.KeyValue{Value: []byte("damaged"), ModRevision: 13}})
	require.ErrorIs(t, err, ErrUnreadable)
	s.Forget()
	require.Nil(t, s.Seen())
}

// A244: a record that another process has made exact keeps the limit that was to be replaced, and one that the first program
// stores replaces no change.
func TestReplaces(t *testing.T) {
	t.Parallel()
	was := record.Limit{Limit: 3, Nonce: "a", By: "one", AtMS: 5, Previous: 9}
	mine := record.Limit{Limit: 1, Nonce: "b", By: "two", AtMS: 6}
	exact, ok := settled(was, 60, mirror.View{Known: true, Through: 80})
	require.True(t, ok)
	exact.Nonce = "c"
	for name, c := range map[string]struct {
		found record.Limit
		was   record.Limit
		want  commit.Found
	}{
		"mine":              {mine, was, commit.Mine},
		"made exact":        {exact, was, commit.NotMade},
		"another":           {record.Limit{Limit: 3, Nonce: "d", By: "one", AtMS: 7}, was, commit.Another},
		"of another owner":  {record.Limit{Limit: 3, Nonce: "d", By: "three", AtMS: 5}, was, commit.Another},
		"of the first one":  {record.Limit{Limit: 3, Nonce: "d", By: "one", AtMS: 7, Initial: true}, record.Limit{}, commit.NotMade},
		"where none was":    {record.Limit{Limit: 3, Nonce: "d", By: "one", AtMS: 7}, record.Limit{}, commit.Another},
		"before owners had": {record.Limit{Limit: 3, Nonce: "d"}, record.Limit{Limit: 2, Nonce: "e"}, commit.Another},
	} {
		require.Equal(t, c.want, replaces(mine, c.was)([]byte(c.found.Encode())), name)
	}
	require.Equal(t, commit.Another, replaces(mine, was)([]byte("damaged")))
}

// A607: a key has the default again once its own limit is read as gone, and has its own again only by a later record. A read
// of before does not count, nor one of which that is not known.
func TestOwnLimitIsGone(t *testing.T) {
	t.Parallel()
	kv := func(n, revision int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Value: []byte(record.Limit{Limit: n, Settled: true}.Encode()), ModRevision: revision}
	}
	base := kv(2, 5)
	s := &Store{See: func(int64) {}, Base: &Base{See: func(int64) {}}}
	for _, c := range []struct {
		read Records
		seen int64
	}{
		{Records{Own: kv(0, 10), Base: base, At: 12}, 0},
		{Records{Base: base}, 0},
		{Records{Base: base, At: 9}, 0},
		{Records{Base: base, At: 13}, 2},
		{Records{Own: kv(0, 10), Base: base, At: 12}, 2},
		{Records{Own: kv(7, 11), Base: base}, 2},
		{Records{Base: kv(3, 14), At: 14}, 3},
		{Records{Own: kv(0, 10), Base: kv(3, 14), At: 15}, 3},
		{Records{Own: kv(4, 15), Base: kv(3, 14), At: 15}, 4},
	} {
		_, ok, err := s.Learn(c.read)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, c.seen, s.Seen().N, "%+v", c)
	}
	none := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}}}
	require.Equal(t, Records{At: 7}, s.Records([]*etcdserverpb.ResponseOp{none, none}, 7), "whatever read them (A654)")
}
