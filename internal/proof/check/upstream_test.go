package check

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	upstream "go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// The lock of etcd's own client, recorded in the same way, on its known defects:
// a checker of locks has to find them.

// locks is a run of etcd's own Mutex.
type locks struct {
	t      *testing.T
	c      *embedtest.Cluster
	rec    *history.Recorder
	tap    *history.Tap
	prefix string
	users  sync.WaitGroup
}

func startLocks(t *testing.T) *locks {
	t.Helper()
	c := embedtest.Start(t, nil)
	l := &locks{t: t, c: c, rec: history.NewRecorder(), prefix: c.Prefix(t)}
	for name, value := range map[string]string{SettingLayout: LayoutEtcd, SettingTTL: "4s", SettingReported: "500ms", SettingLeft: "500ms"} {
		l.rec.Set(name, value)
	}
	var err error
	l.tap, err = history.StartTap(l.ctx(), l.rec, l.prefix, c.Client())
	require.NoError(t, err)
	t.Cleanup(l.tap.Close)
	return l
}

func (l *locks) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	l.t.Cleanup(cancel)
	return ctx
}

// healthy records that nothing but the defect is wrong.
func (l *locks) healthy() { l.rec.Mark(history.MarkHealthy) }

// judge ends the run.
func (l *locks) judge() *Report {
	l.t.Helper()
	l.users.Wait()
	require.NoError(l.t, l.tap.Complete(l.ctx()))
	h, err := l.rec.History()
	require.NoError(l.t, err)
	r := Judge(h, all...)
	if testing.Verbose() {
		l.t.Log(r)
	}
	return r
}

// user is a session with its mutex.
type user struct {
	*locks
	client *embedtest.Client
	rec    *history.Client
	sess   *upstream.Session
	mutex  *upstream.Mutex
	header bool // it takes the header's revision for a token, as users do
}

func (l *locks) user(name string, ttl int) *user {
	l.t.Helper()
	u := &user{locks: l, client: l.c.NewClient(l.t, nil), rec: l.rec.Client(name)}
	call := u.rec.Call(history.Event{Name: history.Open})
	var err error
	u.sess, err = upstream.NewSession(u.client.Client, upstream.WithTTL(ttl))
	require.NoError(l.t, err)
	call.Return(history.Event{Outcome: history.OK, Lease: int64(u.sess.Lease())})
	u.mutex = upstream.NewMutex(u.sess, l.prefix+"mutex/up")
	l.t.Cleanup(func() { _ = u.sess.Close() })
	return u
}

// Err is what etcd's session offers: Done.
func (u *user) Err() error {
	select {
	case <-u.sess.Done():
		return errors.New("the session is done")
	default:
		return nil
	}
}

// lock returns nil if it fails.
func (u *user) lock() *history.Belief {
	call := u.rec.Call(history.Event{Name: history.Acquire, Gate: "mutex/up"})
	if err := u.mutex.Lock(u.ctx()); err != nil {
		call.Return(history.Event{Outcome: history.Fail, Error: err.Error()})
		return nil
	}
	b := call.Granted(u.token())
	b.Check(u)
	return b
}

func (u *user) token() int64 {
	if u.header {
		return u.mutex.Header().Revision
	}
	owner := u.mutex.IsOwner()
	if c, ok := any(&owner).(interface{ GetCompare() *etcdserverpb.Compare }); ok { // since 3.7
		return c.GetCompare().GetCreateRevision()
	}
	compare := reflect.ValueOf(&owner).Convert(reflect.TypeFor[*etcdserverpb.Compare]()).Interface()
	return compare.(*etcdserverpb.Compare).GetCreateRevision()
}

func (u *user) unlock(b *history.Belief) {
	if b.Check(u) {
		b.End(history.Released)
	} else {
		b.End(history.Lost)
	}
	call := u.rec.Call(history.Event{Name: history.Release, Gate: "mutex/up", Token: u.token()})
	call.Done(u.mutex.Unlock(u.ctx()), nil)
}

// waits has another user wait for the lock in the background, and returns when its
// key exists. It releases the lock when requested.
func (l *locks) waits(u *user) (granted, giveBack chan struct{}) {
	granted, giveBack = make(chan struct{}), make(chan struct{})
	before := l.keys()
	l.users.Go(func() {
		b := u.lock()
		close(granted) // or it failed: then the verdict says so, and no caller waits
		if b != nil {
			<-giveBack
			u.unlock(b)
		}
	})
	require.Eventually(l.t, func() bool { return l.keys() > before }, 20*time.Second, 5*time.Millisecond)
	return granted, giveBack
}

func (l *locks) keys() int64 {
	resp, err := l.c.Client().Get(l.ctx(), l.prefix+"mutex/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(l.t, err)
	return resp.Count
}

// TestUpstreamMutexGoesRed: each known defect of etcd's own lock is found by the
// checkers that are for it, and a run without them is green. Of each group of killers one
// is enough: where the order of an event and a call decides which rule is broken, on a
// busy machine either may be.
func TestUpstreamMutexGoesRed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		run     func(l *locks)
		verdict Verdict
		killers [][]string
	}{
		"all is well": {func(l *locks) {
			a, b := l.user("a", 4), l.user("b", 4)
			held := a.lock()
			_, giveBack := l.waits(b)
			close(giveBack)
			a.unlock(held)
		}, Green, nil},

		// Done counts from when an answer came, not from when the request was
		// sent: here the answer is old when it comes. If the tap saw the delete late, only
		// the overlap is certain; if b was granted late, only the stale belief is.
		"late Done": {func(l *locks) {
			a, b := l.user("a", 4), l.user("b", 4)
			held := a.lock()
			answer := a.client.Inject(embedtest.Fault{Method: "LeaseKeepAlive", Do: embedtest.HoldResponse})
			require.NoError(l.t, answer.WaitHit(l.ctx()))
			a.client.Inject(embedtest.Fault{Method: "LeaseKeepAlive", Do: embedtest.HoldRequest, Times: -1})
			time.Sleep(1500 * time.Millisecond)
			require.NoError(l.t, answer.Release())
			granted, giveBack := l.waits(b)
			for held.Check(a) {
				time.Sleep(time.Millisecond)
			}
			held.End(history.Lost)
			<-granted
			close(giveBack)
		}, Red, [][]string{{"belief/overlap"}, {"belief/stale"}}},

		// #22082: Unlock deletes by name, so a late copy of it deletes the next lock
		// of the same session. The key was deleted while its holder believed in it:
		// store/delete. The checker takes the end of that belief for the earliest time of
		// the delete, so that b's release, of a later revision, seems confirmed too
		// early: store/release. Both are right for this defect.
		"late Unlock": {func(l *locks) {
			a, b := l.user("a", 4), l.user("b", 4)
			first := a.lock()
			late := a.client.Inject(embedtest.Fault{Method: "DeleteRange", Do: embedtest.Duplicate})
			a.unlock(first)
			second := a.lock()
			granted, giveBack := l.waits(b)
			require.NoError(l.t, late.Release())
			<-granted
			require.True(l.t, second.Check(a), "it does not know")
			close(giveBack)
			l.users.Wait()
			a.unlock(second)
		}, Red, [][]string{{"belief/overlap"}, {"store/delete", "store/release"}}},

		// An acquire whose answer is lost fails, and its key stays in the queue.
		"leaked waiter": {func(l *locks) {
			l.healthy()
			a := l.user("a", 4)
			a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
			require.Nil(l.t, a.lock())
			time.Sleep(time.Second)
		}, Red, [][]string{{"live/left"}}},

		// #19597: who waits does not notice the end of its own session.
		"waiter without a session": {func(l *locks) {
			l.healthy()
			a, b := l.user("a", 60), l.user("b", 1)
			held := a.lock()
			l.waits(b)
			finish := l.rec.Begin(history.Event{Name: "revoke", Lease: int64(b.sess.Lease())})
			_, err := l.c.Client().Revoke(l.ctx(), b.sess.Lease())
			if !errors.Is(err, rpctypes.ErrLeaseNotFound) { // on a busy machine it has expired
				require.NoError(l.t, err)
			}
			finish()
			<-b.sess.Done()
			time.Sleep(time.Second)
			a.unlock(held)
		}, Red, [][]string{{"live/forgotten"}}},

		// #11788: after a wait, the header's revision is no create revision.
		"token from the header": {func(l *locks) {
			a, b := l.user("a", 4), l.user("b", 4)
			b.header = true
			held := a.lock()
			_, giveBack := l.waits(b)
			a.unlock(held)
			close(giveBack)
		}, Red, [][]string{{"store/token"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLocks(t)
			tt.run(l)
			r := l.judge()
			require.Equal(t, tt.verdict, r.Verdict, r.String())
			for _, group := range tt.killers {
				require.True(t, slices.ContainsFunc(r.Killers(), func(killer string) bool { return slices.Contains(group, killer) }), "none of %v: %s", group, r)
			}
		})
	}
}
