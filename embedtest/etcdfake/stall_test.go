package etcdfake_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A764: what a stalled connection held was delivered when it broke.
func stalledAndBroken(t *testing.T, etcd *etcdfake.Server) {
	for name, away := range map[string]func(*etcdfake.Client){
		"Cut": (*etcdfake.Client).Cut, "Refuse": (*etcdfake.Client).Refuse, "Break": (*etcdfake.Client).Break,
	} {
		for message, f := range map[string]func(*testing.T, *etcdfake.Server, *etcdfake.Client, string, func(*etcdfake.Client)){
			"request": heldRequest, "delayed request": heldDelayed, "repeated request": heldTwice,
			"response": heldResponse, "event": heldEvent, "renewal": heldRenewal,
		} {
			f(t, etcd, etcd.NewClient(), name+", "+message, away)
		}
	}
}

// leave ends the stall of a client by a broken connection, and waits until nothing is on its way to the server.
func leave(etcd *etcdfake.Server, c *etcdfake.Client, away func(*etcdfake.Client)) {
	away(c)
	for etcd.InFlight() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	c.Heal()
}

// held commits a put with a fault from a stalled client whose connection then breaks.
func held(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, f etcdfake.Fault, away func(*etcdfake.Client)) {
	t.Helper()
	c.Inject(func(m etcdfake.Message) etcdfake.Fault { return f })
	c.Stall()
	code := make(chan codes.Code, 1)
	go func() {
		got, _ := commit(context.Background(), c, name)
		code <- got
	}()
	for etcd.InFlight() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	leave(etcd, c, away)
	require.Equal(t, codes.Unavailable, <-code, name)
	require.Empty(t, etcd.Keys(name), name)
}

func heldRequest(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	held(t, etcd, c, name, etcdfake.Fault{}, away)
}

func heldDelayed(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	held(t, etcd, c, name, etcdfake.Fault{RequestDelay: 300 * time.Millisecond}, away)
}

func heldTwice(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	held(t, etcd, c, name, etcdfake.Fault{Duplicate: 100 * time.Millisecond}, away)
}

func heldResponse(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	c.Inject(func(etcdfake.Message) etcdfake.Fault { return etcdfake.Fault{ResponseDelay: 100 * time.Millisecond} })
	code := make(chan codes.Code, 1)
	go func() {
		got, _ := commit(context.Background(), c, name)
		code <- got
	}()
	for len(etcd.Keys(name)) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	c.Stall()
	time.Sleep(200 * time.Millisecond) // the response has come as far as the stall
	leave(etcd, c, away)
	require.Equal(t, codes.Unavailable, <-code, name)
}

func heldEvent(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	ctx := context.Background()
	w := c.Watch(ctx, name, clientv3.WithCreatedNotify())
	require.True(t, (<-w).Created)
	c.Stall()
	_, err := etcd.Client().Put(ctx, name, "")
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond) // the event has come as far as the stall
	away(c)
	if name != "Break, event" { // after which the watch is resumed as soon as the stall ends
		time.Sleep(50 * time.Millisecond)
		require.Empty(t, w, name)
	}
	c.Heal()
	require.Equal(t, name, string((<-w).Events[0].Kv.Key), "the watch is resumed")
}

func heldRenewal(t *testing.T, etcd *etcdfake.Server, c *etcdfake.Client, name string, away func(*etcdfake.Client)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := c.Grant(ctx, 60)
	require.NoError(t, err)
	left := func() int64 {
		resp, err := etcd.Client().TimeToLive(context.Background(), l.ID)
		require.NoError(t, err)
		return resp.TTL
	}
	for left() > 58 {
		time.Sleep(10 * time.Millisecond)
	}
	c.Stall()
	ended := make(chan error, 1)
	go func() {
		_, err := c.KeepAliveOnce(ctx, l.ID)
		ended <- err
	}()
	for etcd.InFlight() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	away(c)
	c.Refuse() // so that etcd's client, which repeats it, gets no other renewal through
	cancel()
	require.Error(t, <-ended, name)
	for etcd.InFlight() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	require.LessOrEqual(t, left(), int64(58), name)
	c.Heal()
}
