package virtual

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// losesPresence keeps the deletion of presence keys from the watches of a process.
func (d *desk) losesPresence() {
	d.client.Inject(func(m etcdfake.Message) (fate etcdfake.Fault) {
		if resp, ok := m.Body.(*pb.WatchResponse); ok && m.Response {
			for _, ev := range resp.Events {
				fate.DropResponse = fate.DropResponse || ev.Type == clientv3.EventTypeDelete && strings.HasSuffix(string(ev.Kv.Key), "/alive")
			}
		}
		return fate
	})
}

// A104: the end of a lease deletes the lock of a run and the presence key of its session at one revision. If
// the session sees the lock's deletion first, hooks see that the run was lost with the session. While etcd is
// silent, the call waits for that no longer than ReleaseTimeout.
func TestReasonOfALostRun(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second // the default of ReleaseTimeout
	expire := func(d *desk) { require.True(d.t, d.server.Expire(d.session.Lease())) }
	unlock := func(d *desk) {
		for _, key := range d.jobKeys("/lock") {
			_, err := d.client.Delete(d.t.Context(), key)
			require.NoError(d.t, err)
		}
	}
	for name, c := range map[string]struct {
		lose   func(*desk)
		silent bool // when the run has ended
		gone   bool // the caller, then
		want   string
		after  time.Duration
	}{
		"the lease has expired": {lose: expire, want: "session"},
		"the lock was deleted":  {lose: unlock, want: "key_gone"},
		"etcd is silent":        {lose: unlock, silent: true, want: "key_gone", after: timeout},
		"the caller has left":   {lose: unlock, silent: true, gone: true, want: "key_gone"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d, hooks := on[0], &testkit.Recorder{}
				d.open(concurrency.SessionOptions{Hooks: hooks.Hooks()})
				l := d.locker()
				d.losesPresence()
				time.AfterFunc(time.Second, func() { c.lose(d) })
				begun := time.Now()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				_, err := l.Do(ctx, "job", func(ctx context.Context, _ *schedlock.Run) error {
					<-ctx.Done()
					if c.silent {
						d.client.Stall()
					}
					if c.gone {
						leave()
					}
					return nil
				}, fireTime(1))
				require.ErrorIs(t, err, schedlock.ErrLost)
				require.Equal(t, time.Second+c.after, time.Since(begun))
				require.Equal(t, []string{"claim: granted", "Overrun", "run: lost (" + c.want + ")"}, hooks.Texts("job"))
				d.client.Heal()
			})
		})
	}
}
