package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
			r := s.answer(l.laneTimeout()-time.Millisecond, 15)
			synctest.Wait()
			require.Equal(t, r.at.Add(ttl-margin), l.Deadline())
			require.True(t, l.Valid())
		}
		require.Empty(t, a.streams, "one stream served all renewals")
	})
}

// A renewal goes out a third of the TTL after the one before, however long answers
// take that are in time, and only one is under way.
func TestRenewalsAreOnTime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		defer l.Close(errTest)
		s := <-a.streams
		before := s.answer(0, 15).at
		for i := range 10 {
			r := s.answer(time.Duration(i)*l.laneTimeout()/10, 15)
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
// answer), another stream is tried in time, and several if it hangs as well. The
// first that works carries on, and what hung is closed then.
func TestSilentStreamIsReplaced(t *testing.T) {
	for _, what := range []string{"opening", "sending", "answer"} {
		for _, silent := range []int{1, 4} { // in a row
			bubble(t, fmt.Sprint(what, silent), func(t *testing.T) {
				a := newAPI()
				var opened, hung atomic.Int64
				a.open = func(ctx context.Context) error {
					// The first answer shows that a stream which has
					// worked is given up as well.
					n := int(opened.Add(1))
					if what == "opening" && n > 1 && n <= silent {
						hung.Add(1)
						<-ctx.Done()
						hung.Add(-1)
						return ctx.Err()
					}
					return nil
				}
				l := grant(t, a)
				defer l.Close(errTest)
				mute := []*scripted{<-a.streams}
				sent := mute[0].answer(0, 15).at
				mute[0].hang.Store(what == "sending")
				if what != "opening" {
					for len(mute) < silent {
						s := <-a.streams
						s.hang.Store(what == "sending")
						mute = append(mute, s)
					}
				}
				s := <-a.streams
				require.Equal(t, time.Duration(silent)*l.laneTimeout(), time.Since(sent.Add(ttl/3)))
				r := s.answer(0, 15)
				synctest.Wait()
				require.True(t, l.Valid())
				require.Equal(t, r.at.Add(ttl-margin), l.Deadline())
				for _, m := range mute {
					require.Error(t, m.ctx.Err())
				}
				require.Zero(t, hung.Load())
				require.Equal(t, ttl/3, s.answer(0, 15).at.Sub(r.at))
				require.Empty(t, a.streams)
			})
		}
	}
}

// F33: an etcd that takes up to half of the time of trust for every answer keeps the
// lease, though other streams are tried: what is late counts as well, from when it was sent.
func TestSlowAnswers(t *testing.T) {
	for _, margin := range []time.Duration{margin, ttl / 3, ttl / 2} {
		bubble(t, margin.String(), func(t *testing.T) {
			a := newAPI()
			defer close(a.streams)
			l, err := Grant(t.Context(), a, options(margin))
			require.NoError(t, err)
			defer l.Close(errTest)
			go func() {
				for s := range a.streams {
					go func() {
						for {
							select {
							case r := <-s.sent:
								time.AfterFunc((ttl-margin)/2-time.Millisecond, func() { s.answers <- answer{id: r.id, seconds: 15} })
							case <-s.ctx.Done():
								return
							}
						}
					}()
				}
			}()
			time.Sleep(20 * ttl)
			require.NoError(t, l.Cause())
		})
	}
}

// However long no response comes, a lease has few streams at a time.
func TestSilentStreamsAreFew(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		defer l.Close(errTest)
		var streams []*scripted
		for l.Context().Err() == nil {
			select {
			case s := <-a.streams:
				streams = append(streams, s)
			case <-l.Context().Done():
			}
			synctest.Wait()
			open := 0
			for _, s := range streams {
				if s.ctx.Err() == nil {
					open++
				}
			}
			require.LessOrEqual(t, open, maxLanes)
		}
		require.LessOrEqual(t, len(streams), 9, "one at first and one each eighth of the time of trust")
	})
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
		core, lines := observer.New(zap.DebugLevel)
		o := options(margin)
		o.Log = zap.New(core)
		l, err := Grant(t.Context(), a, o)
		require.NoError(t, err)
		defer l.Close(errTest)
		s := <-a.streams
		s.answer(0, 15)
		synctest.Wait()
		require.Equal(t, 8, opened)
		require.True(t, l.Valid())
		require.Len(t, lines.All(), 1, "one line for an outage, however often a stream is opened")
		opened = 4
		s.answers <- answer{err: errUnavailable}
		(<-a.streams).answer(0, 15)
		synctest.Wait()
		require.Len(t, lines.All(), 2, "and one for the next")
	})
}

// An outage costs the lease only if it lasts until shortly before the deadline: the pause
// between two tries is short, and connections do not wait for gRPC's back-off.
func TestOutage(t *testing.T) {
	for i := range 50 { // chance decides the pauses
		bubble(t, fmt.Sprint(i), func(t *testing.T) {
			a := newAPI()
			l := grant(t, a)
			defer l.Close(errTest)
			s := <-a.streams
			s.answer(0, 15)
			synctest.Wait()
			deadline, tries := l.Deadline(), int32(0)
			a.open = func(context.Context) error {
				if left := time.Until(deadline); left > 1500*time.Millisecond {
					tries++
					require.Equal(t, tries, a.reconnects.Load())
					return errUnavailable
				}
				return nil
			}
			s.answers <- answer{err: errUnavailable}
			select {
			case s = <-a.streams:
				s.answer(0, 15)
				synctest.Wait()
			case <-l.Context().Done():
			}
			require.NoError(t, l.Cause())
			require.True(t, l.Deadline().After(deadline))
		})
	}
}

// L9: an expired auth token ends the stream, not the lease. F21, A113: no refusal does. F05: that it is
// gone does.
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
		"permission denied":   {answer{err: rpctypes.ErrGRPCPermissionDenied}, nil},
		"no user":             {answer{err: rpctypes.ErrGRPCUserEmpty}, nil},
		"lease gone":          {answer{seconds: 0}, ErrGone},
		"lease gone, oddly":   {answer{seconds: -1}, ErrGone},
		"wrong password":      {answer{err: rpctypes.ErrGRPCAuthFailed}, nil},
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
				require.Less(t, r.at.Sub(at), 200*time.Millisecond)
				return
			}
			<-l.Context().Done()
			require.ErrorIs(t, l.Cause(), tt.lost)
			require.Equal(t, at, time.Now(), "at once")
		})
	}
}

// A113: renewals that are refused are repeated until the deadline, at growing distances, one stream at a
// time. The first one that is acknowledged keeps the lease, however late it comes. If none is, the lease
// ends at its deadline, and the cause is the refusal, if that was what etcd said last.
func TestDeniedRenewals(t *testing.T) {
	for name, tt := range map[string]struct {
		granted time.Duration // how long before the deadline the refusals end
		last    error         // how the streams after five refusals end
		cause   []error
	}{
		"to the end":             {0, rpctypes.ErrGRPCPermissionDenied, []error{ErrDeadline, ErrDenied, rpctypes.ErrGRPCPermissionDenied}},
		"until late":             {2500 * time.Millisecond, rpctypes.ErrGRPCPermissionDenied, nil},
		"then nothing is heard":  {0, errUnavailable, []error{ErrDeadline}},
		"until late, by silence": {2500 * time.Millisecond, errUnavailable, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			a, o := newAPI(), options(margin)
			var said []error
			o.Denied = func(err error) { said = append(said, err) }
			l, err := Grant(t.Context(), a, o)
			require.NoError(t, err)
			defer l.Close(errTest)
			s := <-a.streams
			s.answer(0, 15)
			synctest.Wait()
			deadline, tries := l.Deadline(), 0
			for l.Valid() && time.Until(deadline) > tt.granted {
				select {
				case r := <-s.sent:
					tries++
					if tries <= 5 {
						s.answers <- answer{id: r.id, err: rpctypes.ErrGRPCPermissionDenied}
					} else {
						s.answers <- answer{id: r.id, err: tt.last}
					}
				case s = <-a.streams:
				case <-l.Context().Done():
				}
				synctest.Wait()
				require.LessOrEqual(t, len(a.streams), 1)
			}
			require.Less(t, tries, 20)
			if tt.cause == nil {
				for len(a.streams) > 0 {
					s = <-a.streams
				}
				s.answer(0, 15)
				synctest.Wait()
				require.NoError(t, l.Cause())
				require.True(t, l.Deadline().After(deadline))
				require.NoError(t, said[len(said)-1], "it is over")
				said = said[:len(said)-1]
			} else {
				require.Equal(t, deadline, time.Now())
				for _, want := range tt.cause {
					require.ErrorIs(t, l.Cause(), want)
				}
				require.Equal(t, len(tt.cause) == 3, errors.Is(l.Cause(), ErrDenied))
			}
			for _, err := range said {
				require.ErrorIs(t, err, rpctypes.ErrGRPCPermissionDenied)
			}
			require.GreaterOrEqual(t, len(said), 5)
		})
	}
}

// S10: an answer for another lease, one without a request, and one with less
// than the granted TTL renew nothing.
func TestTrapS10ForeignAnswers(t *testing.T) {
	for name, send := range map[string]func(s *scripted, own int64){
		"another lease":           func(s *scripted, own int64) { <-s.sent; s.answers <- answer{id: own + 1, seconds: 15} },
		"a smaller TTL":           func(s *scripted, own int64) { <-s.sent; s.answers <- answer{id: own, seconds: 14} },
		"reply without a request": func(s *scripted, own int64) { s.answers <- answer{id: own, seconds: 15} },
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

// F11: when a lease has ended, for whatever reason, its streams are closed and no
// renewal is sent for it any more.
func TestNoRenewalAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(l *Lease, s *scripted){
		"closed": func(l *Lease, _ *scripted) { l.Close(errTest) },
		"lost":   func(l *Lease, _ *scripted) { l.Lose(errTest) },
		"gone":   func(_ *Lease, s *scripted) { s.answer(0, 0) },
		"denied": func(l *Lease, s *scripted) {
			<-s.sent
			s.answers <- answer{err: rpctypes.ErrGRPCPermissionDenied}
			<-l.Context().Done()
		},
		"deadline": func(l *Lease, _ *scripted) { <-l.Context().Done() },
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			l := grant(t, a)
			defer l.Close(errTest)
			streams := []*scripted{<-a.streams}
			streams[0].answer(0, 15)
			end(l, streams[0])
			<-l.Context().Done()
			synctest.Wait()
			for len(a.streams) > 0 {
				streams = append(streams, <-a.streams)
			}
			for _, s := range streams {
				require.Error(t, s.ctx.Err(), "the stream is closed")
				for len(s.sent) > 0 {
					<-s.sent
				}
			}
			time.Sleep(10 * ttl)
			require.Empty(t, a.streams, "no stream is opened")
			for _, s := range streams {
				require.Empty(t, s.sent, "nothing is sent")
			}
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
