package embedtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	put(t, cl.Client, key, "1")

	cl.Delay(time.Hour)
	done := async(func() error { _, err := cl.Put(within(t, patience), key, "2"); return err })
	require.Eventually(t, func() bool { return cl.Requests()["Put"] == 2 }, patience, 5*time.Millisecond)
	// gRPC has written the request to the connection. Before that, gRPC itself may send it
	// on another connection.
	require.Eventually(t, func() bool {
		cl.link.mu.Lock()
		defer cl.link.mu.Unlock()
		for conn := range cl.link.conns {
			var sent []byte
			conn.out.mu.Lock()
			for _, c := range conn.out.chunks {
				sent = append(sent, c.bytes...)
			}
			conn.out.mu.Unlock()
			if bytes.Contains(sent, []byte(key)) {
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond)
	cl.Cut()
	err := result(t, done)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	_, err = cl.Put(within(t, 50*time.Millisecond), key, "2")
	require.Error(t, err)
	require.Equal(t, "1", value(t, c, key), "others are not cut")
	require.Empty(t, cl.link.conns)

	cl.Heal()
	put(t, cl.Client, key, "3")
	require.Equal(t, "3", value(t, c, key))
}

func TestCutEndsAWatchStreamAndHealResumesIt(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	ch := watching(t, cl.Client, key)
	cl.Cut()
	put(t, c.Client(), key, "1")
	cl.Heal()
	require.Equal(t, "1", string(next(t, ch).Events[0].Kv.Value))
}

func TestBlackHoleHangsWhileTheServerLives(t *testing.T) {
	ownServersOnly(t) // a late request may write after the keys are deleted
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	put(t, cl.Client, key, "1")

	cl.BlackHole()
	_, err := cl.Put(within(t, 50*time.Millisecond), key, "2")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "1", value(t, c, key), "the request went nowhere")
	cl.link.mu.Lock()
	open := len(cl.link.conns)
	cl.link.mu.Unlock()
	require.NotZero(t, open, "the connection is still open")

	done := async(func() error { _, err := cl.Get(within(t, patience), key); return err })
	cl.Heal()
	require.NoError(t, result(t, done), "what was under way arrives")
}

func TestBlackHoleHangsNewConnections(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	cl.BlackHole() // before the first request has connected, or just after
	_, err := cl.Get(within(t, 50*time.Millisecond), key)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(t.Context())
	dial := async(func() error { _, err := cl.link.dial(ctx, "127.0.0.1:1"); return err })
	cancel()
	require.ErrorIs(t, result(t, dial), context.Canceled)

	cl.Heal()
	_, err = cl.Get(within(t, patience), key)
	require.NoError(t, err)
}

// A response can be held in the black hole although the request was applied.
func TestBlackHoleHoldsAnswersToo(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	ch := watching(t, cl.Client, key)
	cl.BlackHole()
	put(t, c.Client(), key, "1")
	select {
	case r := <-ch:
		t.Fatalf("an event came through the hole: %v", r)
	case <-time.After(50 * time.Millisecond):
	}
	cl.Heal()
	require.Equal(t, "1", string(next(t, ch).Events[0].Kv.Value))
}

// lateConn is a connection whose Close returns late.
type lateConn struct {
	net.Conn
	closed chan struct{}
}

func (c lateConn) Close() error {
	<-c.closed
	return c.Conn.Close()
}

// A763: bytes that a black hole held were delivered when the link was cut, before the connection closed.
func TestCutLosesWhatABlackHoleHeld(t *testing.T) {
	t.Parallel()
	const addr = "member"
	all := func(to reach) func(*link) { return func(l *link) { l.all = to } }
	one := func(to reach) func(*link) { return func(l *link) { l.single[addr] = to } }
	for name, c := range map[string]struct{ hold, cut func(*link) }{
		"BlackHole, Cut":         {all(hole), all(cut)},
		"BlackHole, CutFrom":     {all(hole), one(cut)},
		"BlackHoleFrom, Cut":     {one(hole), all(cut)},
		"BlackHoleFrom, CutFrom": {one(hole), one(cut)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := net.Pipe()
			defer b.Close()
			raw := lateConn{a, make(chan struct{})}
			l := newLink()
			conn := &linkConn{Conn: raw, link: l, addr: addr, in: newLane(l, addr), out: newLane(l, addr)}
			l.conns[conn] = struct{}{}
			l.set(c.hold)
			for _, lane := range []*lane{conn.in, conn.out} {
				_, err := lane.put([]byte("held"), nil)
				require.NoError(t, err)
			}
			ended := async(func() error { l.set(c.cut); return nil })
			for _, lane := range []*lane{conn.in, conn.out} {
				n, err := lane.take(make([]byte, 8))
				require.Zero(t, n)
				require.ErrorIs(t, err, io.EOF)
			}
			l.set(func(l *link) { l.all = open; clear(l.single) })
			_, err := conn.Read(make([]byte, 8))
			require.ErrorIs(t, err, io.EOF, "healed before the close")
			close(raw.closed)
			require.NoError(t, result(t, ended))
		})
	}
}

func TestDelayDelaysBothDirections(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	put(t, cl.Client, key, "0")
	const d = 40 * time.Millisecond
	cl.Delay(d)
	begin := time.Now()
	put(t, cl.Client, key, "1")
	require.GreaterOrEqual(t, time.Since(begin), 2*d)

	cl.Delay(time.Hour)
	done := async(func() error { _, err := cl.Get(within(t, patience), key); return err })
	cl.Heal()
	require.NoError(t, result(t, done), "Heal lets go what is under way")
}

func TestDelayKeepsTheOrderAndTheRate(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	l := newLink()
	l.delay = 200 * time.Millisecond
	c := &linkConn{Conn: a, link: l, in: newLane(l, ""), out: newLane(l, "")}
	go c.receive()
	defer c.Close()
	const n = 100
	begin := time.Now()
	go func() {
		for i := range n {
			_, _ = b.Write([]byte{byte(i)})
		}
		_ = b.Close()
	}()
	var got []byte
	buf := make([]byte, 7)
	for {
		k, err := c.Read(buf)
		got = append(got, buf[:k]...)
		if err != nil {
			break
		}
	}
	require.Len(t, got, n)
	for i := range got {
		require.Equal(t, byte(i), got[i])
	}
	took := time.Since(begin)
	require.GreaterOrEqual(t, took, l.delay)
	require.Less(t, took, n*l.delay/2, "a delay is not a limit of the rate")
}

func TestClientPinnedToAMember(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	for i, ep := range c.Endpoints() {
		cl := c.NewClient(t, &ClientOptions{Endpoints: []string{ep}})
		resp, err := cl.Get(within(t, patience), "x")
		require.NoError(t, err)
		require.Equal(t, uint64(c.members[i].running().etcd.Server.MemberID()), resp.Header.GetMemberId())
	}
}

func TestClientOptionsConfigure(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, &ClientOptions{
		Endpoints: []string{"127.0.0.1:1"},
		Configure: func(cfg *clientv3.Config) { cfg.Endpoints = c.Endpoints() },
	})
	put(t, cl.Client, c.Prefix(t)+"k", "1")
}

func TestCutFromOneMember(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests wait for members that are silent: 3 s")
	}
	t.Parallel()
	ownServersOnly(t)
	c := Start(t, &Options{Members: 3})
	cl := c.NewClient(t, nil)
	id := func(i int) uint64 { return uint64(c.members[i].running().etcd.Server.MemberID()) }
	// answered returns how many of 12 requests each member answers, and how many fail.
	answered := func() (by map[uint64]int, silent int) {
		by = map[uint64]int{}
		for range 12 {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			resp, err := cl.Get(ctx, "x", clientv3.WithSerializable())
			cancel()
			if err != nil {
				silent++
			} else {
				by[resp.Header.GetMemberId()]++
			}
		}
		return by, silent
	}
	allThree := func() bool { by, _ := answered(); return len(by) == 3 }
	require.Eventually(t, allThree, patience, 5*time.Millisecond)

	cl.CutFrom(0)
	by, _ := answered()
	require.Zero(t, by[id(0)])
	require.NotEmpty(t, by, "the others are reached")

	cl.BlackHoleFrom(1)
	by, silent := answered()
	require.Zero(t, by[id(0)]+by[id(1)])
	require.Positive(t, by[id(2)])
	require.Positive(t, silent, "a request to the silent member hangs")

	cl.Heal()
	require.Eventually(t, allThree, patience, 5*time.Millisecond)
}
