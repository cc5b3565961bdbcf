package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// grants gives the first n grants of leases with less than that TTL in seconds a fault.
func (d *desk) grants(n int, below int64, of etcdfake.Fault) {
	var met atomic.Int64
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if r, ok := m.Body.(*pb.LeaseGrantRequest); !ok || r.TTL >= below || n >= 0 && met.Add(1) > int64(n) {
			return etcdfake.Fault{}
		}
		return of
	})
}

const (
	anyLease   = 1 << 40
	retainOnly = 2 * 24 * 60 * 60 // less than the leases of attempts in progress have
)

var lost = etcdfake.Fault{DropRequest: true, DropResponse: true}

// A489: the first grants are not answered. Calls that wait for a lease get another one, each a second after the one before, and
// the requests are repeated: no call fails.
func TestUnansweredGrantFailsNoCall(t *testing.T) {
	t.Parallel()
	calls := func(t *testing.T, most time.Duration, all ...func() error) {
		t.Helper()
		errs := make(chan error, len(all))
		for n, call := range all {
			go func() {
				time.Sleep(time.Duration(n) * 4900 * time.Millisecond) // the second comes shortly before a call to etcd is given up
				begun := time.Now()
				err := call()
				assert.Less(t, time.Since(begun), most)
				errs <- err
			}()
		}
		for range all {
			require.NoError(t, <-errs)
		}
	}
	t.Run("Begin", func(t *testing.T) {
		for n, most := range map[int]time.Duration{1: 2 * time.Second, 2: 3 * time.Second, 4: 6 * time.Second} {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				a := on[0].storeOf(idempotency.Options{})
				on[0].grants(n, anyLease, lost)
				begin := func(id string) func() error {
					return func() error {
						_, _, err := a.Begin(within(t, time.Hour), order(id), "payload")
						return err
					}
				}
				calls(t, most, begin("1"), begin("2"))
			})
		}
	})
	t.Run("Commit", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			a := on[0].storeOf(idempotency.Options{})
			on[0].grants(1, retainOnly, lost)
			first, second := started(t, a, order("1")), started(t, a, order("2"))
			calls(t, 2*time.Second, func() error { return first.Commit(within(t, time.Hour), nil) }, func() error { return second.Commit(within(t, time.Hour), nil) })
		})
	})
	t.Run("FailOpen", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			a := on[0].storeOf(tenant())
			on[0].grants(1, anyLease, lost)
			with := false
			mw, err := idemhttp.Middleware(a, &idemhttp.Options{FailOpen: true})
			require.NoError(t, err)
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "1")
			mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, with = idempotency.FromContext(r.Context()) })).ServeHTTP(httptest.NewRecorder(), r)
			require.True(t, with, "the handler runs, and has no attempt")
		})
	})
}

// A490: etcd refuses a grant, and its answer is late. It is the error of the call that the grant was sent for; a call that has
// come since gets a lease, which etcd grants by then.
func TestLateRefusalOfAGrant(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		a := on[0].storeOf(idempotency.Options{})
		on[0].grants(1, anyLease, etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrNoSpace, ResponseDelay: 900 * time.Millisecond})
		errs := make(chan error, 1)
		go func() {
			_, _, err := a.Begin(within(t, time.Hour), order("1"), "payload")
			errs <- err
		}()
		time.Sleep(500 * time.Millisecond)
		_, _, err := a.Begin(within(t, time.Hour), order("2"), "payload")
		require.NoError(t, err)
		require.ErrorIs(t, <-errs, idempotency.ErrNearQuota)
	})
}

// A489: a call that waits for a lease ends with its own ctx, or says that its session is closed.
func TestEndsOfAWaitForALease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends time.Duration
		want error
	}{"its ctx": {3 * time.Second, context.DeadlineExceeded}, "its session": {time.Hour, idempotency.ErrClosed}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				a := on[0].storeOf(idempotency.Options{})
				on[0].grants(-1, anyLease, lost)
				time.AfterFunc(10*time.Second, func() { on[0].close(time.Second) })
				_, _, err := a.Begin(within(t, tt.ends), order("1"), "payload")
				require.ErrorIs(t, err, tt.want)
				require.NotErrorIs(t, err, context.Canceled)
			})
		})
	}
}
