package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// refuseThose has etcd refuse the messages of a client that match.
func (d *desk) refuseThose(err error, match func(m etcdfake.Message) bool) (mend func()) {
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if match(m) {
			return etcdfake.Fault{DropRequest: true, Err: err, ResponseDelay: time.Millisecond}
		}
		return etcdfake.Fault{}
	})
	return func() { d.client.Inject(nil) }
}

// putsIn returns a match of the Txns that put a key first that contains a text.
func putsIn(part string) func(m etcdfake.Message) bool {
	return func(m etcdfake.Message) bool {
		r, ok := m.Body.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), part)
	}
}

// overwrite replaces the value of the only key with that end, until it is mended.
func (d *desk) overwrite(end, value string) (mend func()) {
	d.t.Helper()
	etcd := d.client.Client
	found, err := etcd.Get(context.Background(), prefix, clientv3.WithPrefix())
	require.NoError(d.t, err)
	for _, kv := range found.Kvs {
		if strings.HasSuffix(string(kv.Key), end) {
			_, err = etcd.Put(context.Background(), string(kv.Key), value)
			require.NoError(d.t, err)
			return func() {
				_, err := etcd.Put(context.Background(), string(kv.Key), string(kv.Value))
				require.NoError(d.t, err)
			}
		}
	}
	d.t.Fatalf("no key ends with %s", end)
	return nil
}

// hindrances are what keeps a process from tokens although etcd answers.
var hindrances = map[string]struct {
	perSecond float64
	begun     bool // the process has taken a token before
	set       func(d *desk) (mend func())
	want      string
}{
	"the rate is damaged":               {100, true, func(d *desk) func() { return d.overwrite("/rate/rate/limit", "bad") }, "cannot be read"},
	"the rate is damaged at the start":  {100, false, func(d *desk) func() { _ = d.storeRate(100); return d.overwrite("/rate/rate/limit", "bad") }, "cannot be read"},
	"a slow rate is damaged":            {0.5, true, func(d *desk) func() { return d.overwrite("/rate/rate/limit", "bad") }, "cannot be read"},
	"the tokens are of a later release": {0.5, false, func(d *desk) func() { return d.laterTokens() }, "later"},
	"the queue may not be read":         {100, true, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCPermissionDenied, readsOf("/rate/")) }, "permission"},
	"the rate may not be stored": {100, false, func(d *desk) func() {
		return d.refuseThose(rpctypes.ErrGRPCPermissionDenied, putsIn("/rate/rate/limit"))
	}, "permission"},
	"there is no space for the rate":     {100, false, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCNoSpace, putsIn("/rate/rate/limit")) }, "space"},
	"the tokens may not be read":         {0.5, false, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCPermissionDenied, readsOf("/bucket/")) }, "permission"},
	"the tokens may not be stored":       {0.5, true, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCPermissionDenied, putsIn("/bucket/")) }, "permission"},
	"there is no space for the tokens":   {0.5, true, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCNoSpace, putsIn("/bucket/")) }, "space"},
	"there is no space for a lease":      {0.5, true, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCNoSpace, grantsLease) }, "space"},
	"a share may not be acquired":        {100, false, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCPermissionDenied, putsIn("/queue/")) }, "permission"},
	"there is no space for a share":      {100, false, func(d *desk) func() { return d.refuseThose(rpctypes.ErrGRPCNoSpace, putsIn("/queue/")) }, "space"},
	"the session has too many requests":  {100, false, (*desk).fill, "too many"},
	"there are too many, of a slow rate": {0.5, false, (*desk).fill, "too many"},
}

func grantsLease(m etcdfake.Message) bool {
	_, ok := m.Body.(*etcdserverpb.LeaseGrantRequest)
	return ok
}

// readsOf returns a match of the reads of keys that contain a text.
func readsOf(part string) func(m etcdfake.Message) bool {
	return func(m etcdfake.Message) bool {
		switch r := m.Body.(type) {
		case *etcdserverpb.RangeRequest:
			return strings.Contains(string(r.Key), part)
		case *etcdserverpb.TxnRequest:
			return len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestRange().GetKey()), part)
		}
		return false
	}
}

// storeRate stores a rate by another session.
func (d *desk) storeRate(perSecond float64) error {
	p, end := d.join(d.t)
	defer end(false)
	return p.rate(perSecond, 3).SetRate(context.Background(), concurrency.Rate{PerSecond: perSecond, Burst: 3}, concurrency.CreateLimit())
}

// laterTokens has another session take a token, and replaces the record of that by one of a later release.
func (d *desk) laterTokens() (mend func()) {
	p, end := d.join(d.t)
	require.NoError(d.t, p.rate(0.5, 3).Wait(within(d.t, time.Minute)))
	end(false)
	return d.overwrite("/bucket/rate/left", `{"v":99}`)
}

// fill has the session hold as many permits as it may.
func (d *desk) fill() (mend func()) {
	sem := d.semaphore(mostPermits)
	var held []*concurrency.Permit
	for range mostPermits {
		p, err := sem.Acquire(context.Background())
		require.NoError(d.t, err)
		held = append(held, p)
	}
	return func() {
		for _, p := range held {
			require.NoError(d.t, p.Release(context.Background()))
		}
	}
}

const mostPermits = 4

// A611 in internal/proof/tested-failures.md: whatever keeps a process from its tokens although etcd answers, Allow and Wait
// return the error of that, at each call until it is mended, and a middleware that does not wait says that it is unavailable.
// None of them says that the rate is exceeded.
func TestRateRefusalsHaveOneReason(t *testing.T) {
	t.Parallel()
	for name, c := range hindrances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0].limited(t, mostPermits)
				defer d.client.Close()
				defer d.close(time.Second)
				l := d.rate(c.perSecond, 3)
				if c.begun {
					require.NoError(t, l.Wait(within(t, time.Minute)))
				}
				mend := c.set(d)
				mw, err := limithttp.Middleware(nil, limithttp.Options{Rate: l})
				require.NoError(t, err)
				h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				for range 60 { // what the process has still may be taken
					_ = l.Allow()
					time.Sleep(500 * time.Millisecond)
				}
				for range 40 {
					require.ErrorContains(t, l.Allow(), c.want)
					require.NotErrorIs(t, l.Allow(), concurrency.ErrRateExceeded)
					r := httptest.NewRecorder()
					h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
					require.Equal(t, http.StatusServiceUnavailable, r.Code)
					require.Contains(t, r.Body.String(), `"`+string(limithttp.CodeUnavailable)+`"`)
					time.Sleep(130 * time.Millisecond)
				}
				for range 5 {
					err = l.Wait(within(t, 10*time.Second))
					require.ErrorContains(t, err, c.want)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, concurrency.ErrRateExceeded)
					soon, ends := within(t, 30*time.Millisecond), make(chan error, 10)
					for range cap(ends) { // at once, so that the turn of the last one would come later
						go func() { ends <- l.Wait(soon) }()
					}
					for range cap(ends) {
						err = <-ends
						require.ErrorContains(t, err, c.want)
						require.NotErrorIs(t, err, concurrency.ErrRateExceeded)
					}
				}
				mend()
				require.Eventually(t, func() bool { return l.Allow() == nil }, 10*time.Second, 100*time.Millisecond)
				require.NoError(t, l.Wait(within(t, 10*time.Second)))
			})
		})
	}
}

// limited starts one more process whose session may have so many requests, or as many as it has by default.
func (d *desk) limited(t *testing.T, most int) *desk {
	t.Helper()
	client := d.server.NewClient()
	p := &desk{t: t, server: d.server, client: client, begun: time.Now()}
	var err error
	p.session, err = concurrency.NewSession(t.Context(), client.Client, "test",
		&concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix, MaxPermits: most})
	require.NoError(t, err)
	return p
}

// A612 in internal/proof/tested-failures.md: a process that may have fewer shares than it needs asks for no more than that, and
// takes tokens of those that it gets. Requests of others for the same session count as well.
func TestRateWithinMaxPermits(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 2, 4} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			const most = 5
			d := on[0].limited(t, most)
			defer d.client.Close()
			defer d.close(time.Second)
			sem := d.semaphore(most)
			for range others {
				_, err := sem.Acquire(t.Context())
				require.NoError(t, err)
			}
			l := d.rate(100, 100)
			ctx := within(t, 10*time.Second)
			for range 8 {
				require.NoError(t, l.Wait(ctx), others)
			}
			st, err := l.Status(ctx)
			require.NoError(t, err)
			require.Len(t, st.Holders, 1)
			require.Equal(t, most-others, st.Holders[0].Shares)
		})
	}
}

// A612: etcd refuses some of the requests for shares, and no call fails: others are granted.
func TestRateWithOneShareRefused(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{1, 3} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d, left := on[0], refused
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				switch {
				case !putsIn("/rate/rate/queue/")(m):
					return etcdfake.Fault{}
				case left == 0:
					return etcdfake.Fault{RequestDelay: 50 * time.Millisecond}
				}
				left--
				return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCPermissionDenied}
			})
			l := d.rate(100, 100)
			require.NoError(t, l.Wait(within(t, 10*time.Second)))
			require.Zero(t, left)
		})
	}
}

// A613 in internal/proof/tested-failures.md: a process that is called no more returns its shares although it cannot read the
// rate, and reads it no more.
func TestIdleProcessOfADamagedRate(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{0.5, 100} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			l := d.rate(perSecond, 10)
			require.NoError(t, l.Wait(within(t, time.Minute)))
			mend := d.overwrite("/rate/rate/limit", "bad")
			time.Sleep(time.Minute + 2*time.Second)
			found, err := d.client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			require.NoError(t, err)
			for _, kv := range found.Kvs {
				require.NotContains(t, string(kv.Key), "/rate/rate/queue/")
			}
			reads := 0
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				if readsOf("/rate/")(m) {
					reads++
				}
				return etcdfake.Fault{}
			})
			time.Sleep(time.Minute)
			require.Zero(t, reads)
			mend()
			require.ErrorIs(t, l.Allow(), concurrency.ErrRateExceeded, "it has not read the rate since")
			require.NoError(t, l.Wait(within(t, 10*time.Second)))
		})
	}
}
