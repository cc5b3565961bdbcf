package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
)

// TestRefuse: each error of Begin has one answer, and the handler may run without a claim only
// after an error that says that nothing is known of the request.
func TestRefuse(t *testing.T) {
	t.Parallel()
	k := idempotency.Key{Op: "POST /payments", ID: "K-17"}
	st := &idempotency.Store{}
	for _, c := range []struct {
		name string
		err  error
		want Refusal
	}{
		{"in progress", &idempotency.InProgressError{RetryAfter: 3 * time.Second}, Refusal{Reason: InProgress, RetryAfter: 3 * time.Second}},
		{"in progress, and etcd away", errors.Join(&idempotency.InProgressError{RetryAfter: 3 * time.Second}, context.DeadlineExceeded), Refusal{Reason: InProgress, RetryAfter: 3 * time.Second}},
		{"another payload", &idempotency.MismatchError{}, Refusal{Reason: Reused}},
		{"another host", fmt.Errorf("begin: %w", &idempotency.MismatchError{Also: true}), Refusal{Reason: Reused, Also: true}},
		{"scope full", &idempotency.ScopeFullError{RetryAfter: time.Minute}, Refusal{Reason: ScopeFull, RetryAfter: time.Minute, Report: true}},
		{"invalid", idempotency.ErrInvalid, Refusal{Reason: Internal, Report: true}},
		{"unknown", &idempotency.UnknownError{Note: "order 7"}, Refusal{Reason: Unknown, Ref: st.Ref(k), Report: true}},
		{"unreadable", fmt.Errorf("%w: version 9", idempotency.ErrUnreadable), Refusal{Reason: Unreadable, Ref: st.Ref(k), Report: true}},
		{"near the quota", errors.Join(idempotency.ErrUnseen, idempotency.ErrNearQuota), Refusal{Reason: Full, RetryAfter: time.Second, Report: true}},
		{"away, unseen", errors.Join(idempotency.ErrUnseen, context.DeadlineExceeded), Refusal{Reason: Unavailable, RetryAfter: time.Second, Report: true}},
		{"away, seen", context.DeadlineExceeded, Refusal{Reason: Unavailable, RetryAfter: time.Second, Report: true}},
		{"closed", idempotency.ErrClosed, Refusal{Reason: Unavailable, RetryAfter: time.Second, Report: true}},
	} {
		require.Equal(t, c.want, Settings{Store: st}.Refuse(t.Context(), k, c.err), c.name)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		err    error
		report bool
	}{
		{context.Canceled, false}, // it has waited for another attempt
		{errors.Join(idempotency.ErrUnseen, context.Canceled, &concurrency.UnavailableError{}), true},
		{errors.Join(context.Canceled, idempotency.ErrNearQuota), true},
		{idempotency.ErrClosed, true},
		{&idempotency.UnknownError{}, true},
	} {
		refused := Settings{Store: st}.Refuse(left, k, c.err)
		require.Equal(t, c.report, refused.Report, c.err)
		require.Nil(t, refused.Open, c.err)
	}
	run := &running{}
	opened := &openError{errors.Join(idempotency.ErrUnseen, context.DeadlineExceeded), run}
	require.Equal(t, Refusal{Reason: Unavailable, RetryAfter: time.Second, Report: true, Open: run}, Settings{Store: st}.Refuse(t.Context(), k, fmt.Errorf("begin: %w", opened)))
	require.False(t, run.ended)
	require.Nil(t, Settings{Store: st}.Refuse(left, k, opened).Open)
	require.True(t, run.ended, "nothing runs for a client that has left")
	require.Equal(t, "order 7", Settings{Store: st, ShowNote: true}.Refuse(t.Context(), k, &idempotency.UnknownError{Note: "order 7"}).Note)
}

// running is a run without a claim.
type running struct {
	unclaimed.Run
	ended bool
}

func (r *running) End() { r.ended = true }

// TestFit: names that a Key can have stay, and longer ones stay apart.
func TestFit(t *testing.T) {
	t.Parallel()
	for n := range 600 {
		s := strings.Repeat("é", n)[:n]
		fit := Fit(s)
		require.LessOrEqual(t, len(fit), MaxKey)
		require.Equal(t, len(s) <= MaxKey, fit == s)
		require.NotEqual(t, Fit(s+"a"), Fit(s+"b"))
	}

	// A395: a scope that a tenant chooses could read like what another tenant's long one is shortened to.
	fit := Fit(strings.Repeat("x", MaxKey+1))
	require.NotEqual(t, fit, Fit(fit))
	odd := fit[:len(fit)-1] + "g"
	require.Equal(t, odd, Fit(odd))
}
