package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/life"
)

// A740, A741, A747: while Close waits for work, its parts are counted and new work is not; helpers are counted apart. Nothing is once no
// work is left, and Close waits for the helpers then.
func TestWhatCloseWaitsFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before  []relation // that are live when Close begins
		do      func(w *work) (counted []bool)
		want    []bool
		settled bool
		idle    bool
	}{
		"nothing":         {do: func(*work) []bool { return nil }, settled: true, idle: true},
		"nothing, a part": {do: func(w *work) []bool { return []bool{w.add(part), w.add(helper), w.add(fresh)} }, want: []bool{false, false, false}, settled: true, idle: true},
		"work":            {before: []relation{fresh}, do: func(w *work) []bool { return []bool{w.add(fresh)} }, want: []bool{false}},
		"work, its part":  {before: []relation{fresh}, do: func(w *work) []bool { return []bool{w.add(part), w.add(helper)} }, want: []bool{true, true}},
		"a part outlasts its work": {before: []relation{fresh}, do: func(w *work) []bool {
			first := w.add(part)
			w.end(1, 0)
			return []bool{first, w.add(part)}
		}, want: []bool{true, true}},
		"work has ended": {before: []relation{fresh, part}, do: func(w *work) []bool {
			w.end(2, 0)
			return []bool{w.add(part), w.add(helper)}
		}, want: []bool{false, false}, settled: true, idle: true},
		"a helper is left": {before: []relation{fresh, helper}, do: func(w *work) []bool {
			w.end(1, 0)
			return []bool{w.add(part), w.add(helper)}
		}, want: []bool{false, false}, settled: true},
		"the deadline has come": {before: []relation{fresh, helper}, do: func(w *work) []bool {
			w.settleNow()
			return []bool{w.add(part), w.add(helper)}
		}, want: []bool{false, false}, settled: true},
		"all end after the deadline": {before: []relation{fresh, helper}, do: func(w *work) []bool {
			w.settleNow()
			w.end(1, 1)
			w.end(1, 0)
			return nil
		}, settled: true, idle: true},
		"helpers alone":          {before: []relation{helper, helper}, do: func(*work) []bool { return nil }, settled: true},
		"helpers have ended":     {before: []relation{helper, helper}, do: func(w *work) []bool { w.end(1, 1); w.end(1, 1); return nil }, settled: true, idle: true},
		"all end with the epoch": {before: []relation{fresh, helper}, do: func(w *work) []bool { w.end(2, 1); w.end(0, 0); return nil }, settled: true, idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t.Context(), t.Context())
			for _, as := range c.before {
				require.True(t, w.add(as))
			}
			w.close()
			require.Error(t, w.accept.Err())
			require.Equal(t, c.want, c.do(w))
			require.Equal(t, c.settled, w.working.Err() != nil)
			select {
			case <-w.idle:
				require.True(t, c.idle)
			default:
				require.False(t, c.idle)
			}
		})
	}
}

// of is the trust of handles of the session with that ID.
type of string

func (o of) Of() string        { return string(o) }
func (of) Valid() bool         { return true }
func (of) Deadline() time.Time { return time.Time{} }

// A740: a call is a part of work on its own session alone, and as long as that has not ended.
func TestRelation(t *testing.T) {
	t.Parallel()
	s := &Session{id: "own"}
	under := func(ctx context.Context, session string) (context.Context, *life.Life) {
		l := &life.Life{}
		l.Begin(ctx, of(session), nil)
		return l.Context(), l
	}
	ctx := t.Context()
	other, _ := under(ctx, "another")
	own, ends := under(ctx, "own")
	deep, _ := under(own, "another")
	require.Equal(t, fresh, relationOf(ctx, s))
	require.Equal(t, fresh, relationOf(other, s))
	require.Equal(t, part, relationOf(own, s))
	require.Equal(t, part, relationOf(deep, s))
	require.Equal(t, part, relationOf(context.WithoutCancel(deep), s))
	require.Equal(t, part, relationOf(ends.Around(ctx), s))
	require.Equal(t, fresh, relationOf(life.Apart(deep), s))
	helping := context.WithValue(ctx, helperKey{}, s)
	require.Equal(t, helper, relationOf(helping, s))
	require.Equal(t, fresh, relationOf(context.WithValue(ctx, helperKey{}, &Session{id: "own"}), s))
	ends.End(ErrLost)
	require.Equal(t, fresh, relationOf(own, s))
	require.Equal(t, fresh, relationOf(deep, s))
}
