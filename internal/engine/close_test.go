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
		do      func(s *Session) (counted []bool)
		want    []bool
		settled bool
		idle    bool
	}{
		"nothing":         {do: func(*Session) []bool { return nil }, settled: true, idle: true},
		"nothing, a part": {do: func(s *Session) []bool { return []bool{s.remember(part), s.remember(helper), s.remember(fresh)} }, want: []bool{false, false, false}, settled: true, idle: true},
		"work":            {before: []relation{fresh}, do: func(s *Session) []bool { return []bool{s.remember(fresh)} }, want: []bool{false}},
		"work, its part":  {before: []relation{fresh}, do: func(s *Session) []bool { return []bool{s.remember(part), s.remember(helper)} }, want: []bool{true, true}},
		"a part outlasts its work": {before: []relation{fresh}, do: func(s *Session) []bool {
			first := s.remember(part)
			s.forget(1, 0)
			return []bool{first, s.remember(part)}
		}, want: []bool{true, true}},
		"work has ended": {before: []relation{fresh, part}, do: func(s *Session) []bool {
			s.forget(2, 0)
			return []bool{s.remember(part), s.remember(helper)}
		}, want: []bool{false, false}, settled: true, idle: true},
		"a helper is left": {before: []relation{fresh, helper}, do: func(s *Session) []bool {
			s.forget(1, 0)
			return []bool{s.remember(part), s.remember(helper)}
		}, want: []bool{false, false}, settled: true},
		"the deadline has come": {before: []relation{fresh, helper}, do: func(s *Session) []bool {
			settle(s)
			return []bool{s.remember(part), s.remember(helper)}
		}, want: []bool{false, false}, settled: true},
		"all end after the deadline": {before: []relation{fresh, helper}, do: func(s *Session) []bool {
			settle(s)
			s.forget(1, 1)
			s.forget(1, 0)
			return nil
		}, settled: true, idle: true},
		"helpers alone":          {before: []relation{helper, helper}, do: func(*Session) []bool { return nil }, settled: true},
		"helpers have ended":     {before: []relation{helper, helper}, do: func(s *Session) []bool { s.forget(1, 1); s.forget(1, 1); return nil }, settled: true, idle: true},
		"all end with the epoch": {before: []relation{fresh, helper}, do: func(s *Session) []bool { s.forget(2, 1); s.forget(0, 0); return nil }, settled: true, idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Session{idle: make(chan struct{})}
			s.working, s.settle = context.WithCancel(context.WithValue(t.Context(), helperKey{}, s))
			s.alone, s.unhelped = context.WithCancel(t.Context())
			for _, as := range c.before {
				require.True(t, s.remember(as))
			}
			s.closing = true
			ebb(s)
			require.Equal(t, c.want, c.do(s))
			require.Equal(t, c.settled, s.working.Err() != nil)
			select {
			case <-s.idle:
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
