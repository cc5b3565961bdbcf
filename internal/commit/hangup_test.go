package commit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// raised returns how often the fence was raised.
func (f *fixture) raised() int64 {
	f.t.Helper()
	return f.get(f.presence()).Kvs[0].Version - 1
}

// Callers give up while what they have sent is under way. Each is settled by its own
// answer, whatever that says, and nothing of the others is voided for it.
func TestHangUpRaisesNoFence(t *testing.T) {
	t.Parallel()
	unmet := clientv3.Compare(clientv3.Version("nowhere"), ">", 0)
	for name, do := range map[string]struct {
		fault    embedtest.Fault
		ifs      []clientv3.Cmp
		occupied bool
	}{
		"applied":            {fault: embedtest.Fault{Do: embedtest.HoldResponse}},
		"applied later":      {fault: embedtest.Fault{Do: embedtest.HoldRequest}},
		"its own conditions": {fault: embedtest.Fault{Do: embedtest.HoldResponse}, ifs: []clientv3.Cmp{unmet}},
		"occupied":           {fault: embedtest.Fault{Do: embedtest.HoldResponse}, occupied: true},
		"while it looks why": {fault: embedtest.Fault{Do: embedtest.HoldResponse, Skip: 1}, ifs: []clientv3.Cmp{unmet}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t))
			if do.occupied {
				f.create(f.creation())
			}
			do.fault.Method = "Txn"
			inj := f.client.Inject(do.fault)
			c := f.creation()
			c.If = do.ifs
			pending := f.giveUp(c, inj)
			discarded := make(chan error, 1)
			go func() { discarded <- pending.Discard(ctxT(t)) }()
			require.NoError(t, inj.Release())
			require.NoError(t, <-discarded)
			require.Equal(t, do.occupied, f.exists(f.key()))
			require.Zero(t, f.raised())
		})
	}
}

// The response to a request whose caller has given up is lost: now the fence is
// raised.
func TestHangUpAndLostAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	ctx, hangUp := context.WithCancel(ctxT(t))
	ended := make(chan struct{})
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, After: func() { hangUp(); <-ended }})
	_, err := f.fence.Create(ctx, f.creation())
	close(ended)
	require.ErrorIs(t, err, context.Canceled)
	var pending *commit.PendingError
	require.ErrorAs(t, err, &pending)
	require.True(t, f.exists(f.key()))
	require.NoError(t, pending.Discard(ctxT(t)))
	require.False(t, f.exists(f.key()))
	require.EqualValues(t, 1, f.raised())
}

// Nothing is sent for a caller whose ctx has ended before, and nothing is to be settled:
// also not for a caller that has waited for others.
func TestHangUpBeforeSending(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, embedtest.Shared(t))
		f.client.ResetRequests()
		ctx, hangUp := context.WithCancel(ctxT(t))
		hangUp()
		_, err := f.fence.Create(ctx, f.creation())
		require.Equal(t, context.Canceled, err)
		require.Empty(t, f.client.Requests())
	})
	t.Run("in a group", func(t *testing.T) {
		t.Parallel()
		g := newFixture(t, embedtest.Shared(t)).gathering()
		ctx, hangUp := context.WithCancel(ctxT(t))
		gone, stays := g.createWith(ctx, g.creation("gone")), g.create("stays")
		g.gathered(2)
		hangUp()
		<-gone.ended
		g.gathered(1)
		g.goes()
		require.NoError(t, stays.err)
		require.ErrorIs(t, gone.err, context.Canceled)
		if pending := new(commit.PendingError); errors.As(gone.err, &pending) {
			require.NoError(t, pending.Discard(ctxT(t)))
		}
		require.False(t, g.exists(g.prefix+"gone"))
		require.Equal(t, map[string]int{"Txn": 1}, g.client.Requests())
		require.Zero(t, g.raised())
	})
}

// Of a group's request one caller gives up: its part is settled by the answer to all.
func TestHangUpInAGroup(t *testing.T) {
	t.Parallel()
	g := newFixture(t, embedtest.Shared(t)).gathering()
	ctx, hangUp := context.WithCancel(ctxT(t))
	gone, stays := g.createWith(ctx, g.creation("gone")), g.create("stays")
	g.gathered(2)
	inj := g.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse})
	g.inj.Release()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	hangUp()
	<-gone.ended
	var pending *commit.PendingError
	require.ErrorAs(t, gone.err, &pending)
	inj.Release()
	require.NoError(t, pending.Discard(ctxT(t)))
	g.done.Wait()
	require.NoError(t, stays.err)
	require.False(t, g.exists(g.prefix+"gone"))
	require.True(t, g.exists(g.prefix+"stays"))
	require.Zero(t, g.raised())
}

// The session closes while a call is under way whose caller has given up: Abandon and the
// end of Discard's ctx end it at once.
func TestHangUpAndClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*commit.PendingError){
		"abandoned": (*commit.PendingError).Abandon,
		"discarded": func(p *commit.PendingError) {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			require.ErrorIs(t, p.Discard(over), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t))
			inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
			end(f.giveUp(f.creation(), inj))
			require.NoError(t, inj.Release())
			require.IsType(t, &etcdserverpb.TxnResponse{}, inj.LateResponses()[0].Response)
		})
	}
}
