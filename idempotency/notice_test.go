package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// logged is an instance and its warnings.
func (f fixture) logged(opts *idempotency.Options) (instance, *observer.ObservedLogs) {
	core, lines := observer.New(zap.WarnLevel)
	return f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, opts), lines
}

// V22: a result that is not kept is logged with its reason when it is recorded, whatever the reason: a Codec that has
// failed lost a receipt without a word.
func TestResultThatIsNotKeptIsLogged(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, lines := f.logged(&idempotency.Options{Codec: reverse("kms"), MaxResult: 200})
	for id, c := range map[string]struct{ result, because string }{
		"failed": {"poison", `codec "kms": poison`},
		"large":  {string(make([]byte, 200)), "Options.MaxResult, 200"},
		"kept":   {"receipt", ""},
	} {
		res, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(context.Context, *idempotency.Attempt) (string, error) { return c.result, nil }, idempotency.Note("order "+id))
		require.NoError(t, err)
		require.Equal(t, c.result, res.Value)
		said := lines.FilterMessageSnippet("a result is not kept").FilterField(zap.String("ref", string(in.Ref(key(id))))).All()
		if c.because == "" {
			require.Empty(t, said)
			continue
		}
		require.Len(t, said, 1, id)
		require.Equal(t, "order "+id, said[0].ContextMap()["note"])
		require.Contains(t, said[0].ContextMap()["error"], c.because)
	}
	require.EqualValues(t, 2, in.Stats().Omitted)
}

// V23: under Refuse, an attempt whose session ends while its function works is logged at that moment, once: its client
// may not come again. Under TakeOver the attempt that takes over is.
func TestSessionThatEndsUnderAFunctionIsLogged(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, lines := f.logged(nil)
	a := begin(t, in, key("1"), idempotency.OnLost(idempotency.Refuse), idempotency.Note("order 1"))
	begin(t, in, key("2"))
	settled := begin(t, in, key("3"), idempotency.OnLost(idempotency.Refuse))
	require.NoError(t, settled.Commit(ctxT(t), nil))
	require.NoError(t, f.ExpireLease(ctxT(t), in.sess.Lease()))
	got(t, a.Context().Done(), "the end of the session")
	said := func() []observer.LoggedEntry { return lines.FilterMessageSnippet("before its function").All() }
	require.Eventually(t, func() bool { return len(said()) > 0 }, soon, 1)
	require.NoError(t, in.sess.Close(ctxT(t)))
	require.Len(t, said(), 1)
	require.Equal(t, "order 1", said()[0].ContextMap()["note"])
	require.Equal(t, string(a.Ref()), said()[0].ContextMap()["ref"])
	require.NotEmpty(t, said()[0].ContextMap()["because"])
}

// V23: an outcome that is still being written when the session ends is logged: it is not recorded, and its caller has
// only heard that it is not recorded yet.
func TestOutcomeThatTheSessionEndedUnderIsLogged(t *testing.T) {
	t.Parallel()
	in, lines := shared(t).logged(&idempotency.Options{OnLost: idempotency.Refuse})
	done, abandoned := begin(t, in, key("done")), begin(t, in, key("abandoned"))
	in.client.Cut()
	gone, cancel := context.WithCancel(ctxT(t))
	cancel()
	require.ErrorIs(t, done.Commit(gone, []byte("x")), idempotency.ErrNotRecorded)
	require.ErrorIs(t, abandoned.Abandon(gone), idempotency.ErrNotRecorded)
	require.Error(t, in.sess.Close(gone))
	for text, a := range map[string]*idempotency.Attempt{"an outcome could not be recorded": done, "what it did is not known": abandoned} {
		require.Eventually(t, func() bool { return lines.FilterMessageSnippet(text).Len() == 1 }, soon, 1)
		require.Equal(t, string(a.Ref()), lines.FilterMessageSnippet(text).All()[0].ContextMap()["ref"])
	}
}
