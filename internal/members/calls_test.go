package members

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// bare returns the calls of a client that has no network, with users or without.
func bare(t *testing.T, user string) *calls {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := clientv3.NewCtxClient(ctx)
	client.Username = user
	s := newCalls(client, zap.NewNop())
	t.Cleanup(func() { s.close(); cancel() })
	return s
}

// judged returns a judge for whom c hangs and a and b answer, or, if none is to hang, all do.
func judged(hangs bool) *judge {
	j := newJudge(time.Unix(0, 0), 0)
	j.members = map[string]*member{"a": {good: true}, "b": {good: true}, "c": {good: !hangs, hangs: hangs}}
	return j
}

func TestWhichCallsEnd(t *testing.T) {
	t.Parallel()
	const hangs, calm = true, false
	for name, tt := range map[string]struct {
		call  call
		hangs bool
		term  uint64 // of an answer
		ends  bool
	}{
		"in time, by the client":                             {call{}, hangs, 5, false},
		"M9: late, and no member hangs":                      {call{late: true}, calm, 5, false},
		"late, and may be at the member":                     {call{late: true}, hangs, 5, true},
		"at the member that hangs":                           {call{on: &conn{endpoint: "c"}}, hangs, 5, true},
		"late, at another":                                   {call{late: true, on: &conn{endpoint: "a"}}, hangs, 5, false},
		"M7: late, at another, and its token comes from any": {call{late: true, astray: true, on: &conn{endpoint: "a"}}, hangs, 5, true},
		"in time, at another, and its token comes from any":  {call{astray: true, on: &conn{endpoint: "a"}}, hangs, 5, false},
		"late, of an older term":                             {call{late: true, term: 4}, calm, 5, true},
		"late, of an older term, at another":                 {call{late: true, term: 4, on: &conn{endpoint: "a"}}, hangs, 5, true},
		"in time, of an older term":                          {call{term: 4}, calm, 5, false},
		"late, of this term":                                 {call{late: true, term: 5}, calm, 5, false},
		"late, and the term was not known when it was sent":  {call{late: true}, calm, 5, false},
		"M13: a stream at the member that hangs":             {call{opened: true, where: "c"}, hangs, 5, true},
		"M13: a stream at another":                           {call{opened: true, where: "a"}, hangs, 5, false},
		"M13: a stream at one that has not answered":         {call{opened: true, where: "x"}, hangs, 5, true},
		"A785: a stream that has not answered":               {call{opened: true}, hangs, 5, false},
		"A785: the same, late":                               {call{opened: true, late: true}, hangs, 5, true},
		"M13: the same, and all answer":                      {call{opened: true, where: "x"}, calm, 5, false},
		"M13: a stream that is late, of an older term":       {call{late: true, term: 4, on: &conn{endpoint: "a"}, opened: true, where: "a"}, calm, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why := tt.call.ends(judged(tt.hangs), addresses{"a": "a", "b": "b", "c": "c"}, tt.term)
			require.Equal(t, tt.ends, why != "", why)
		})
	}
}

// etcd's client fetches tokens round robin: with users, a call by an own connection may hang at any member.
func TestCallsAstray(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		user  string
		opens bool
		after time.Duration
		want  bool
	}{
		"without users":                {"", false, 5 * time.Second, false},
		"M7: a call, at first":         {"app", false, 900 * time.Millisecond, false},
		"M7: a call, after a second":   {"app", false, 1100 * time.Millisecond, true},
		"M7: a stream that is opened":  {"app", true, 300 * time.Millisecond, true},
		"M7: after one that has ended": {"ended", true, 400 * time.Millisecond, false},
		"M7: the same, later":          {"ended", true, 600 * time.Millisecond, true},
		"the same without users":       {"", true, 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bare(t, tt.user)
				s.trouble = true // no loop
				s.route = []*conn{{endpoint: "a"}}
				if tt.user == "ended" {
					ctx, c := s.begin(t.Context(), true)
					time.Sleep(300 * time.Millisecond)
					synctest.Wait()
					c.cancel(&UnansweredError{})
					require.Error(t, s.end(ctx, c, ctx.Err()))
				}
				ctx, c := s.begin(t.Context(), tt.opens)
				time.Sleep(tt.after)
				synctest.Wait()
				s.mu.Lock()
				late, astray := c.late, c.astray
				s.mu.Unlock()
				require.True(t, late)
				require.Equal(t, tt.want, astray)
				require.NoError(t, s.end(ctx, c, nil))
				require.Zero(t, s.late)
			})
		})
	}
}

// No call is sent twice by this package, but for reads: whether a copy has taken effect is its caller's to
// settle, and a grant whose copy took effect would leave a lease behind.
func TestOnlyReadsAreRepeated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reads bool
		err   error // of the first copy
		want  int   // copies
	}{
		"M1, M3, M5, M12: a write that ends unanswered": {false, &UnansweredError{"hangs"}, 1},
		"a read that ends unanswered":                   {true, &UnansweredError{"hangs"}, 2},
		"a read that is refused":                        {true, rpctypes.ErrGRPCCompacted, 1},
		"a read whose connection is lost":               {true, status.Error(codes.Unavailable, "lost"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bare(t, "")
			sent := 0
			method := func(_ *calls, ctx context.Context, _ int, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
				sent++
				if sent > 1 {
					return &etcdserverpb.RangeResponse{}, nil
				}
				if Unanswered(tt.err) {
					for c := range s.under {
						c.cancel(tt.err)
					}
					<-ctx.Done()
					return nil, status.FromContextError(ctx.Err()).Err()
				}
				return nil, tt.err
			}
			_, err := send(door[*calls]{calls: s}, t.Context(), method, 1, nil, tt.reads)
			require.Equal(t, tt.want, sent)
			if sent == 1 {
				require.ErrorIs(t, err, tt.err)
				require.Equal(t, status.Code(tt.err), status.Code(err))
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, s.under)
		})
	}
}

// The end of a caller's ctx is its own error.
func TestCallersEnd(t *testing.T) {
	t.Parallel()
	s := bare(t, "")
	parent, cancel := context.WithCancel(t.Context())
	ctx, c := s.begin(parent, false)
	cancel()
	own := errors.New("own")
	require.ErrorIs(t, s.end(ctx, c, own), own)
	require.False(t, Unanswered(own))
}

// New calls go to the members that answer while one is left out, in turn; otherwise by the caller's client.
func TestRoute(t *testing.T) {
	t.Parallel()
	s := bare(t, "")
	a := &avoidance{calls: s, judge: judged(true), conns: map[string]*conn{"a": {endpoint: "a"}, "b": {endpoint: "b"}, "c": {endpoint: "c"}}}
	to := func() (all []string) {
		a.direct()
		for range 4 {
			ctx, c := s.begin(t.Context(), false)
			name := "client"
			if c.on != nil {
				name = c.on.endpoint
			}
			all = append(all, name)
			require.NoError(t, s.end(ctx, c, nil))
		}
		return all
	}
	require.Equal(t, []string{"b", "a", "b", "a"}, to())
	a.judge.members["b"].good = false
	require.Equal(t, []string{"a", "a", "a", "a"}, to())
	a.judge.members["c"].hangs = false
	require.Equal(t, []string{"client", "client", "client", "client"}, to())
}

// A826 in internal/proof/tested-failures.md: a call whose goroutine is stopped while it begins is late as any other. Its
// timer fired before the call was recorded, and never again, so that a hang of its member was not seen; and the detector
// reported a race.
func TestLateWhileItBegins(t *testing.T) {
	t.Parallel()
	s := bare(t, "")
	fired := make(chan struct{})
	s.afterFunc = func(_ time.Duration, late func()) *time.Timer {
		go func() {
			late()
			close(fired)
		}()
		select { // the goroutine is stopped
		case <-fired:
		case <-time.After(50 * time.Millisecond):
		}
		return time.NewTimer(time.Hour)
	}
	_, c := s.begin(t.Context(), false)
	<-fired
	s.mu.Lock()
	defer s.mu.Unlock()
	require.True(t, c.late)
}
