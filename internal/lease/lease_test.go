package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Time in these tests is that of a synctest bubble: exact, and it passes only
// when every goroutine waits. A bubble also fails if a goroutine is left.

var errUnavailable = status.Error(codes.Unavailable, "test: no answer")

// api is a scripted etcd. What is nil succeeds.
type api struct {
	grant   func(id, seconds int64) (int64, error)
	granted func(id int64) (int64, error)
	revoke  func(id int64) error
	open    func(ctx context.Context) error
	streams chan *scripted

	mu      sync.Mutex
	revoked []int64
}

func newAPI() *api { return &api{streams: make(chan *scripted, 100)} }

func (a *api) Grant(_ context.Context, id, seconds int64) (int64, error) {
	if a.grant == nil {
		return seconds, nil
	}
	return a.grant(id, seconds)
}

func (a *api) Granted(_ context.Context, id int64) (int64, error) { return a.granted(id) }

func (a *api) Revoke(_ context.Context, id int64) error {
	a.mu.Lock()
	a.revoked = append(a.revoked, id)
	a.mu.Unlock()
	if a.revoke == nil {
		return nil
	}
	return a.revoke(id)
}

func (a *api) Renewals(ctx context.Context) (Stream, error) {
	if a.open != nil {
		if err := a.open(ctx); err != nil {
			return nil, err
		}
	}
	s := &scripted{ctx: ctx, sent: make(chan sending, 100), answers: make(chan answer, 100)}
	a.streams <- s
	return s, nil
}

// scripted is one stream of renewals.
type scripted struct {
	ctx     context.Context
	hang    atomic.Bool // in Send
	sent    chan sending
	answers chan answer
}

type sending struct {
	id int64
	at time.Time
}

func (s *scripted) Send(id int64) error {
	if s.hang.Load() {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.sent <- sending{id, time.Now()}
	return nil
}

func (s *scripted) Recv() (id, seconds int64, err error) {
	select {
	case a := <-s.answers:
		return a.id, a.seconds, a.err
	case <-s.ctx.Done():
		return 0, 0, status.FromContextError(s.ctx.Err()).Err()
	}
}

// answer answers the next renewal, after d.
func (s *scripted) answer(d time.Duration, seconds int64) sending {
	r := <-s.sent
	time.Sleep(d)
	s.answers <- answer{id: r.id, seconds: seconds}
	return r
}

const (
	ttl    = 15 * time.Second
	margin = 3 * time.Second
)

func grant(t *testing.T, a *api) *Lease {
	t.Helper()
	l, err := Grant(t.Context(), a, Options{TTL: ttl, Margin: margin})
	require.NoError(t, err)
	return l
}

var errTest = errors.New("the test is over")

func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	if name == "" {
		synctest.Test(t, f)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// F01, S10: deadlines count from the sending of a grant and of each renewal,
// however long the answers take.
func TestDeadlineCountsFromSend(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		begun := time.Now()
		a.grant = func(_, seconds int64) (int64, error) {
			time.Sleep(4 * time.Second)
			return seconds, nil
		}
		l := grant(t, a)
		defer l.Close(errTest)
		require.Equal(t, begun.Add(ttl-margin), l.Deadline())
		s := <-a.streams
		for range 20 {
			r := s.answer(2900*time.Millisecond, 15)
			synctest.Wait()
			require.Equal(t, r.at.Add(ttl-margin), l.Deadline())
			require.True(t, l.Valid())
		}
		require.Empty(t, a.streams, "one stream served all renewals")
	})
}

// A renewal goes out a third of the TTL after the one before, however long
// answers take, and only one is under way.
func TestRenewalsAreOnTime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		defer l.Close(errTest)
		s := <-a.streams
		before := s.answer(0, 15).at
		for i := range 10 {
			r := s.answer(time.Duration(i)*290*time.Millisecond, 15)
			require.Equal(t, ttl/3, r.at.Sub(before))
			require.Empty(t, s.sent)
			before = r.at
		}
	})
}

// F04, T22, F33, T33: without answers the lease is lost at its deadline, not
// before and not after, and what comes then brings nothing back.
func TestTrapS10LateAnswer(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		defer l.Close(errTest)
		s := <-a.streams
		s.answer(0, 15)
		synctest.Wait()
		deadline := l.Deadline()
		var last *scripted
		for l.Context().Err() == nil {
			select {
			case last = <-a.streams:
			case <-l.Context().Done():
			}
		}
		require.Equal(t, deadline, time.Now())
		require.ErrorIs(t, l.Cause(), ErrDeadline)
		last.answers <- answer{id: l.ID(), seconds: 15}
		time.Sleep(time.Second)
		require.False(t, l.Valid())
		require.Equal(t, deadline, l.Deadline())
		require.ErrorIs(t, l.Cause(), ErrDeadline)
	})
}

// F33, T33, F13: whatever hangs (the opening of a stream, the sending, the
// answer) is replaced in time, by a stream that works.
func TestSilentStreamIsReplaced(t *testing.T) {
	for _, what := range []string{"opening", "sending", "answer"} {
		bubble(t, what, func(t *testing.T) {
			a := newAPI()
			opened := 0
			var hung time.Duration
			a.open = func(ctx context.Context) error {
				if opened++; opened == 1 && what == "opening" {
					begun := time.Now()
					<-ctx.Done()
					hung = time.Since(begun)
					return ctx.Err()
				}
				return nil
			}
			l := grant(t, a)
			defer l.Close(errTest)
			begun := l.Deadline().Add(margin - ttl)
			if what != "opening" {
				s := <-a.streams
				// The first answer shows that a stream which has
				// worked is given up as well.
				s.answer(0, 15)
				synctest.Wait()
				begun = begun.Add(ttl / 3)
				s.hang.Store(what == "sending")
				<-s.ctx.Done()
				hung = time.Since(begun)
			}
			s := <-a.streams
			require.Equal(t, l.patience(), hung)
			r := s.answer(0, 15)
			synctest.Wait()
			require.True(t, l.Valid())
			require.Equal(t, r.at.Add(ttl-margin), l.Deadline())
			require.Less(t, r.at.Sub(begun), l.patience()+50*time.Millisecond)
		})
	}
}

// F33: broken streams are opened again, with a growing pause, and the lease lives
// as soon as one works.
func TestBrokenStreamIsReplaced(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		opened := 0
		a.open = func(context.Context) error {
			if opened++; opened < 8 {
				return errUnavailable
			}
			return nil
		}
		l := grant(t, a)
		defer l.Close(errTest)
		(<-a.streams).answer(0, 15)
		synctest.Wait()
		require.Equal(t, 8, opened)
		require.True(t, l.Valid())
	})
}

// L9: an expired auth token ends the stream, not the lease. F21: that we may not
// renew ends the lease, and the cause says so. F05: so does that it is gone.
func TestTrapL9EndsOfStreams(t *testing.T) {
	for name, tt := range map[string]struct {
		answer answer
		lost   error // nil: a new stream takes over
	}{
		"invalid token":       {answer{err: rpctypes.ErrGRPCInvalidAuthToken}, nil},
		"old auth revision":   {answer{err: rpctypes.ErrGRPCAuthOldRevision}, nil},
		"no leader":           {answer{err: rpctypes.ErrGRPCNoLeader}, nil},
		"connection lost":     {answer{err: errUnavailable}, nil},
		"unknown":             {answer{err: errors.New("?")}, nil},
		"permission denied":   {answer{err: rpctypes.ErrGRPCPermissionDenied}, ErrDenied},
		"no user":             {answer{err: rpctypes.ErrGRPCUserEmpty}, ErrDenied},
		"lease gone":          {answer{seconds: 0}, ErrGone},
		"lease gone, oddly":   {answer{seconds: -1}, ErrGone},
		"wrong password":      {answer{err: rpctypes.ErrGRPCAuthFailed}, ErrDenied},
		"cancelled by server": {answer{err: status.Error(codes.Canceled, "")}, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			l := grant(t, a)
			defer l.Close(errTest)
			s := <-a.streams
			s.answer(0, 15)
			tt.answer.id = (<-s.sent).id
			at := time.Now()
			s.answers <- tt.answer
			if tt.lost == nil {
				r := (<-a.streams).answer(0, 15)
				synctest.Wait()
				require.Equal(t, r.at.Add(ttl-margin), l.Deadline())
				return
			}
			<-l.Context().Done()
			require.ErrorIs(t, l.Cause(), tt.lost)
			require.Equal(t, at, time.Now(), "at once")
			if tt.answer.err != nil {
				require.ErrorIs(t, l.Cause(), tt.answer.err)
			}
		})
	}
}

// S10: an answer for another lease, one that nobody asked for, and one with less
// than the granted TTL renew nothing.
func TestTrapS10ForeignAnswers(t *testing.T) {
	for name, send := range map[string]func(s *scripted, own int64){
		"another lease":  func(s *scripted, own int64) { <-s.sent; s.answers <- answer{id: own + 1, seconds: 15} },
		"a smaller TTL":  func(s *scripted, own int64) { <-s.sent; s.answers <- answer{id: own, seconds: 14} },
		"nobody's reply": func(s *scripted, own int64) { s.answers <- answer{id: own, seconds: 15} },
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			l := grant(t, a)
			defer l.Close(errTest)
			s := <-a.streams
			s.answer(0, 15)
			synctest.Wait()
			deadline := l.Deadline()
			send(s, l.ID())
			synctest.Wait()
			require.Equal(t, deadline, l.Deadline())
			if name != "a smaller TTL" {
				require.Error(t, s.ctx.Err(), "such a stream cannot be trusted any more")
				(<-a.streams).answer(0, 15)
				synctest.Wait()
				require.True(t, l.Deadline().After(deadline))
			}
		})
	}
}

// F15, S10: a grant whose answer was lost finds its own lease when it is repeated,
// and the time of trust counts from the first sending.
func TestTrapS10GrantCountsFromFirstSend(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		begun := time.Now()
		var ids []int64
		a.grant = func(id, _ int64) (int64, error) {
			ids = append(ids, id)
			if len(ids) == 1 {
				time.Sleep(5 * time.Second)
				return 0, errUnavailable
			}
			return 0, rpctypes.ErrGRPCLeaseExist
		}
		a.granted = func(id int64) (int64, error) {
			require.Equal(t, ids[0], id)
			return 20, nil // F18: etcd gives what it likes
		}
		l := grant(t, a)
		defer l.Close(errTest)
		require.Equal(t, []int64{l.ID(), l.ID()}, ids)
		require.Equal(t, begun.Add(20*time.Second-margin), l.Deadline())
	})
}

// F15: an ID that was taken before the first try is a stranger's; a lease that
// has ended before it was found is not kept.
func TestGrantOfTakenID(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		var ids []int64
		a.grant = func(id, seconds int64) (int64, error) {
			ids = append(ids, id)
			switch len(ids) {
			case 1: // a stranger's
				return 0, rpctypes.ErrGRPCLeaseExist
			case 2:
				time.Sleep(time.Second)
				return 0, errUnavailable
			case 3:
				return 0, rpctypes.ErrGRPCLeaseExist
			}
			return seconds, nil
		}
		a.granted = func(int64) (int64, error) { return 0, nil }
		begun := time.Now()
		l := grant(t, a)
		defer l.Close(errTest)
		require.Len(t, ids, 4)
		require.NotEqual(t, ids[0], ids[1])
		require.Equal(t, ids[1], ids[2])
		require.NotEqual(t, ids[2], ids[3])
		require.Equal(t, ids[3], l.ID())
		require.Greater(t, l.Deadline(), begun.Add(ttl-margin), "counts from the sending of the grant that held")
	})
}

// F18: what etcd has granted counts, for the deadline and for what an answer must
// bring.
func TestGrantedTTLCounts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		a.grant = func(_, _ int64) (int64, error) { return 30, nil }
		begun := time.Now()
		l := grant(t, a)
		defer l.Close(errTest)
		require.Equal(t, 30*time.Second, l.TTL())
		require.Equal(t, begun.Add(30*time.Second-margin), l.Deadline())
		(<-a.streams).answer(0, 15)
		time.Sleep(time.Second)
		require.Equal(t, begun.Add(30*time.Second-margin), l.Deadline(), "15 s is less than was granted")
	})
}

// F14, F15: a grant that is given up returns when its ctx ends, and a lease that
// may be there all the same is revoked.
func TestGrantGivenUp(t *testing.T) {
	for name, err := range map[string]error{"no answer": errUnavailable, "denied": rpctypes.ErrGRPCPermissionDenied, "no space": rpctypes.ErrGRPCNoSpace} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			var id int64
			a.grant = func(i, _ int64) (int64, error) { id = i; return 0, err }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			var after func(context.Context)
			_, failed := Grant(ctx, a, Options{TTL: ttl, Margin: margin, Later: func(f func(context.Context)) { after = f }})
			require.ErrorIs(t, failed, err)
			if err == errUnavailable {
				require.ErrorIs(t, failed, context.DeadlineExceeded)
				require.Equal(t, 10*time.Second, time.Since(begun))
			} else {
				require.Zero(t, time.Since(begun))
			}
			require.Empty(t, a.revoked)
			after(t.Context())
			require.Equal(t, []int64{id}, a.revoked)
		})
	}
}

// F12: one lease's silent stream holds up no other.
func TestOneStreamPerLease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		one := grant(t, a)
		defer one.Close(errTest)
		mute := <-a.streams
		require.Equal(t, one.ID(), (<-mute.sent).id)
		two := grant(t, a)
		defer two.Close(errTest)
		s := <-a.streams
		require.Equal(t, two.ID(), s.answer(0, 15).id)
		synctest.Wait()
		require.True(t, two.Valid())
	})
}

// F19: revoking goes on until etcd has confirmed it, its own bound ends, or it is
// refused for good.
func TestRevokeGoesOn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		l.Close(errTest)
		require.ErrorIs(t, l.Cause(), errTest)
		left := 3
		a.revoke = func(int64) error {
			if left--; left > 0 {
				return errUnavailable
			}
			return nil
		}
		require.NoError(t, l.Revoke(t.Context()))
		require.Zero(t, left)

		a.revoke = func(int64) error { return errUnavailable }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := l.Revoke(ctx)
		require.ErrorIs(t, err, errUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		a.revoke = func(int64) error { return rpctypes.ErrGRPCPermissionDenied }
		require.ErrorIs(t, l.Revoke(t.Context()), rpctypes.ErrGRPCPermissionDenied)
	})
}

// F02, F03: after a suspension the lease is lost as soon as anyone looks, and
// within half a second even if nobody does.
func TestSuspensionIsNoticed(t *testing.T) {
	for _, looks := range []bool{true, false} {
		name := "somebody looks"
		if !looks {
			name = "nobody looks"
		}
		base := time.Now() // in a bubble it has no monotonic reading
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			var mu sync.Mutex
			var slept time.Duration
			begun := time.Now()
			now := func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				run := time.Since(begun)
				return at(base, run+slept, run)
			}
			l, err := Grant(t.Context(), a, Options{TTL: ttl, Margin: margin, Now: now})
			require.NoError(t, err)
			defer l.Close(errTest)
			(<-a.streams).answer(0, 15)
			synctest.Wait()
			require.True(t, l.Valid())
			mu.Lock()
			slept = ttl - margin
			mu.Unlock()
			if looks {
				require.False(t, l.Valid())
				require.Error(t, l.Context().Err())
				return
			}
			suspended := time.Now()
			<-l.Context().Done()
			require.LessOrEqual(t, time.Since(suspended), 500*time.Millisecond)
			require.ErrorIs(t, l.Cause(), ErrDeadline)
		})
	}
}

// The first reason for the end of a lease is the one that counts.
func TestFirstCauseCounts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		l := grant(t, newAPI())
		require.NoError(t, l.Cause())
		l.Lose(ErrGone)
		l.Lose(ErrDeadline)
		l.Close(errTest)
		l.Close(errTest)
		require.Equal(t, ErrGone, l.Cause())
		require.False(t, l.Valid())
	})
}
