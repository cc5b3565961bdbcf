package limithttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// begin sends a request in a goroutine; its channel has the error of the client.
func begin(t testing.TB, ctx context.Context, c *http.Client, to string) <-chan error {
	t.Helper()
	r := call(t, ctx, http.MethodGet, to, "acme", nil)
	ch := make(chan error, 1)
	go func() {
		resp, err := c.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		ch <- err
	}()
	return ch
}

// flow gives each request the ID by which a test evicts it.
func flow(o *limithttp.Options) {
	o.Each = func(*http.Request) []concurrency.AcquireOption {
		return []concurrency.AcquireOption{concurrency.ID("flow")}
	}
}

// TestNotSent: whatever ends a request before base was called, the error of the client matches ErrNotSent and its reason,
// and nothing has arrived.
func TestNotSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason error
		open   bool                               // the limit has a permit left
		set    func(instance, *limithttp.Options) // before the Transport is made
		before func(instance)                     // before the request
		queued func(instance, context.CancelFunc) // while it waits
		text   string
	}{
		"full":                   {reason: concurrency.ErrFull, text: `: limithttp: GET partner: not sent: acquire "tenants/acme": no permit is free: 1 of 1 in use, 0 waiting`},
		"full, after its Wait":   {reason: concurrency.ErrFull, set: func(_ instance, o *limithttp.Options) { o.Wait = 2 * time.Second }},
		"rate":                   {reason: concurrency.ErrRateExceeded, open: true, set: func(in instance, o *limithttp.Options) { o.Rate = in.rate(scarce) }},
		"too short a deadline":   {reason: context.DeadlineExceeded, set: func(_ instance, o *limithttp.Options) { o.Wait = time.Hour }},
		"etcd does not answer":   {reason: concurrency.ErrUnavailable, open: true, set: func(_ instance, o *limithttp.Options) { o.Wait = 500 * time.Millisecond }, before: func(in instance) { in.client.Cut() }},
		"session closed":         {reason: concurrency.ErrClosed, open: true, before: func(in instance) { _ = in.sess.Close(ctxT(in.f.T)) }},
		"no key":                 {reason: concurrency.ErrInvalid, open: true, set: func(_ instance, o *limithttp.Options) { o.Key = func(*http.Request) (string, bool) { return "", true } }},
		"caller leaves":          {reason: context.Canceled, queued: func(_ instance, cancel context.CancelFunc) { cancel() }},
		"evicted while it waits": {reason: concurrency.ErrEvicted, queued: func(in instance, _ context.CancelFunc) { _ = in.Key("acme").Evict(ctxT(in.f.T), "flow", "test") }},
		"released by its ID":     {reason: concurrency.ErrReleased, queued: func(in instance, _ context.CancelFunc) { _ = in.Key("acme").ReleaseID(ctxT(in.f.T), "flow") }},
		"session closed meanwhile": {reason: concurrency.ErrClosed, queued: func(in instance, _ context.CancelFunc) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = in.sess.Close(ended) // the permit of this test is held
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			if !c.open {
				in.take("acme")
			}
			o := options(flow)
			if c.queued != nil {
				o.Wait = time.Hour
			}
			if c.set != nil {
				c.set(in, &o)
			}
			client := in.calling(o, roundTripper(func(*http.Request) (*http.Response, error) {
				t.Error("it was sent")
				return nil, errors.New("sent")
			}))
			if c.before != nil {
				c.before(in)
			}
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			if c.reason == context.DeadlineExceeded {
				late, stop := context.WithTimeout(ctx, 300*time.Millisecond)
				defer stop()
				ctx = late
			}
			end := begin(t, ctx, client, "http://partner/")
			if c.queued != nil {
				in.waiters("acme", 1)
				c.queued(in, cancel)
			}
			err := testkit.Got(t, end, "the request ends")
			require.ErrorIs(t, err, limithttp.ErrNotSent)
			require.ErrorIs(t, err, c.reason)
			var of *url.Error
			require.ErrorAs(t, err, &of)
			require.ErrorContains(t, err, "limithttp: GET partner: not sent: ")
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// TestSent: whatever ends a request after base was called, the error of the client does not match ErrNotSent.
func TestSent(t *testing.T) {
	t.Parallel()
	failed := errors.New("planned")
	for name, c := range map[string]struct {
		reason error
		base   http.RoundTripper
		during func(instance, context.CancelFunc)
	}{
		"the partner fails": {reason: failed, base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, failed })},
		"caller leaves":     {reason: context.Canceled, during: func(_ instance, cancel context.CancelFunc) { cancel() }},
		"late":              {reason: context.DeadlineExceeded, during: func(_ instance, late context.CancelFunc) { late() }},
		"permit lost": {reason: concurrency.ErrEvicted, during: func(in instance, _ context.CancelFunc) {
			_ = in.Key("acme").Evict(ctxT(in.f.T), "flow", "test")
		}},
		"session closed": {reason: concurrency.ErrClosed, during: func(in instance, _ context.CancelFunc) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = in.sess.Close(ended)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			arrived := make(chan struct{}, 1)
			to, _ := downstream(t, func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-r.Context().Done()
			})
			client := in.calling(options(flow), c.base)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			if c.reason == context.DeadlineExceeded {
				ctx, cancel = testkit.Deadline(ctx)
			}
			end := begin(t, ctx, client, to)
			if c.during != nil {
				testkit.Got(t, arrived, "the request arrives")
				c.during(in, cancel)
			}
			err := testkit.Got(t, end, "the request ends")
			require.ErrorIs(t, err, c.reason)
			require.NotErrorIs(t, err, limithttp.ErrNotSent)
		})
	}
}

// TestNotSentAfterARedirect: the first request was sent, and may have had its effect.
func TestNotSentAfterARedirect(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	to, calls := downstream(t, func(w http.ResponseWriter, r *http.Request) {
		in.take("acme")
		http.Redirect(w, r, "/receipt", http.StatusSeeOther)
	})
	o := options()
	o.Key = func(r *http.Request) (string, bool) { return "acme", r.URL.Path == "/receipt" }
	_, err := in.calling(o, nil).Do(call(t, ctxT(t), http.MethodPost, to+"/order", "acme", nil))
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NotErrorIs(t, err, limithttp.ErrNotSent)
	require.EqualValues(t, 1, calls.Load())
}

// TestNotSentWithATimeout: when http.Client.Timeout has passed, an error of the client's own can replace that of the
// Transport, of which it keeps the text: ErrNotSent is not found then.
func TestNotSentWithATimeout(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	in.take("acme")
	client := in.calling(options(wait(time.Hour)), nil)
	client.Timeout = 300 * time.Millisecond
	err := testkit.Got(t, begin(t, ctxT(t), client, "http://partner"), "the request ends")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "limithttp: GET partner: not sent: ")
	require.Equal(t, !strings.Contains(err.Error(), "Client.Timeout exceeded"), errors.Is(err, limithttp.ErrNotSent), err)
}
