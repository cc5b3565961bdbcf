package idempotency_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A second attempt, and a request that is refused because what was done is unknown, are
// logged with the reference by which an operator finds the record, and never with the key.
func TestLostAttemptsAreReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	core, lines := observer.New(zapcore.WarnLevel)
	a, b := f.instance(nil, nil), f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, nil)
	first := begin(t, a, key("secret-1"))
	begin(t, a, key("secret-2"), idempotency.OnLost(idempotency.Refuse))
	require.NoError(t, begin(t, b, key("secret-3")).Release(ctxT(t)))
	require.NoError(t, begin(t, b, key("secret-3")).Abandon(ctxT(t)))
	require.Empty(t, lines.All(), "nothing was lost yet")
	a.crash(t, f)

	at := begin(t, b, key("secret-1"))
	require.Greater(t, at.Token(), first.Token())
	for range 3 { // a client repeats the request, and the log has it once
		_, _, err := b.Begin(ctxT(t), key("secret-2"), "payload")
		require.ErrorIs(t, err, idempotency.ErrUnknown)
	}
	begin(t, b, key("secret-3"))
	require.Len(t, lines.All(), 3)
	for i, want := range []map[string]any{
		{"ref": string(b.Ref(key("secret-1"))), "attempt": int64(2), "lost": a.sess.Owner()},
		{"ref": string(b.Ref(key("secret-2"))), "attempt": int64(1), "lost": a.sess.Owner()},
		{"ref": string(b.Ref(key("secret-3"))), "attempt": int64(2), "lost": b.sess.Owner()},
	} {
		line := lines.All()[i]
		want["store"], want["scope"], want["op"] = "store", "tenant", "pay"
		require.Equal(t, zapcore.WarnLevel, line.Level)
		for name, value := range want {
			require.Equal(t, value, line.ContextMap()[name], "%s: %s", line.Message, name)
		}
		text, err := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}).EncodeEntry(line.Entry, line.Context)
		require.NoError(t, err)
		require.NotContains(t, text.String(), "secret-")
	}
	require.EqualValues(t, 2, b.Stats().TakenOver)
	require.EqualValues(t, 3, b.Stats().Unknown)
}

// A time that is not known is not shown as the year 1.
func TestRecordWithoutAnEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	show := func(id string) (string, map[string]any) {
		r, _, err := a.Get(ctxT(t), a.Ref(key(id)))
		require.NoError(t, err)
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NotContains(t, string(b), "0001-")
		require.NotContains(t, r.String(), "0001-")
		require.Contains(t, r.String(), string(r.Ref))
		require.Contains(t, r.String(), r.State.String())
		var members map[string]any
		require.NoError(t, json.Unmarshal(b, &members))
		return r.String(), members
	}
	at := begin(t, a, key("1"))
	text, members := show("1")
	require.NotContains(t, text, "ended")
	require.NotContains(t, members, "Ended")
	require.Contains(t, members, "Started")
	require.NoError(t, at.Commit(ctxT(t), nil))
	text, members = show("1")
	require.Contains(t, text, "ended")
	require.Contains(t, members, "Ended")

	begin(t, a, key("2"))
	for _, name := range f.Keys("/" + string(a.Ref(key("2")))) {
		_, err := f.Client().Put(ctxT(t), name, "no record")
		require.NoError(t, err)
	}
	text, members = show("2")
	require.Contains(t, text, "unreadable")
	require.NotContains(t, members, "Started")
}
