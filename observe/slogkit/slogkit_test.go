package slogkit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe/slogkit"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// line logs once and returns the line as slog's JSON.
func line(t *testing.T, log func(*zap.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	log(slogkit.Logger(slog.NewJSONHandler(&out, &slog.HandlerOptions{AddSource: true, Level: slog.LevelDebug})))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got), "%s", out.Bytes())
	require.Contains(t, got["source"].(map[string]any)["file"], "slogkit_test.go")
	delete(got, "source")
	when, err := time.Parse(time.RFC3339Nano, got["time"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), when, time.Minute)
	delete(got, "time")
	return got
}

type broken struct{ text *string }

func (b *broken) Error() string { return *b.text }

// Each kind of field arrives as an attribute of its own type.
func TestFields(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 14, 0, 0, 0, time.UTC)
	inline := zapcore.ObjectMarshalerFunc(func(e zapcore.ObjectEncoder) error { e.AddString("in", "line"); return nil })
	for name, tt := range map[string]struct {
		field zap.Field
		want  any
	}{
		"string":            {zap.String("k", "v"), "v"},
		"bool":              {zap.Bool("k", true), true},
		"int":               {zap.Int("k", -7), -7.},
		"int8":              {zap.Int8("k", -7), -7.},
		"uint64":            {zap.Uint64("k", 7), 7.},
		"float":             {zap.Float64("k", 1.5), 1.5},
		"float32":           {zap.Float32("k", 1.5), 1.5},
		"duration":          {zap.Duration("k", time.Second), float64(time.Second)},
		"time":              {zap.Time("k", at), "2026-11-23T14:00:00Z"},
		"error":             {zap.NamedError("k", errors.New("no")), "no"},
		"error that panics": {zap.NamedError("k", (*broken)(nil)), "error whose text panics: runtime error: invalid memory address or nil pointer dereference"},
		"stringer":          {zap.Stringer("k", time.Minute), "1m0s"},
		"strings":           {zap.Strings("k", []string{"a", "b"}), []any{"a", "b"}},
		"any":               {zap.Any("k", map[string]int{"a": 1}), map[string]any{"a": 1.}},
		"object":            {zap.Object("k", inline), map[string]any{"in": "line"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := line(t, func(l *zap.Logger) { l.Info("text", tt.field, zap.Skip()) })
			require.Equal(t, map[string]any{"level": "INFO", "msg": "text", "k": tt.want}, got)
		})
	}
	got := line(t, func(l *zap.Logger) { l.Info("text", zap.Inline(inline)) })
	require.Equal(t, "line", got["in"])
}

// Names, fields from before and namespaces arrive with the line.
func TestWith(t *testing.T) {
	t.Parallel()
	got := line(t, func(l *zap.Logger) {
		l.Named("etcdkit").With(zap.String("a", "1"), zap.Namespace("n"), zap.String("b", "2")).Named("x").Warn("text", zap.Int("c", 3), zap.Namespace("m"), zap.Int("d", 4))
	})
	require.Equal(t, map[string]any{
		"level": "WARN", "msg": "text", "a": "1",
		"n": map[string]any{"logger": "etcdkit.x", "b": "2", "c": 3., "m": map[string]any{"d": 4.}},
	}, got)
}

// Levels arrive as they are, and the handler's level decides.
func TestLevels(t *testing.T) {
	t.Parallel()
	for l, want := range map[zapcore.Level]string{
		zapcore.DebugLevel: "DEBUG", zapcore.InfoLevel: "INFO", zapcore.WarnLevel: "WARN", zapcore.ErrorLevel: "ERROR", zapcore.DPanicLevel: "ERROR+4",
	} {
		require.Equal(t, want, line(t, func(log *zap.Logger) { log.Log(l, "text") })["level"])
	}
	var out bytes.Buffer
	log := slogkit.Logger(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	log.Info("not this")
	log.Warn("this")
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "msg=this")
	slogkit.Logger(nil).Error("nowhere")
}

// lines keeps the lines of a session.
type lines struct {
	slog.Handler
	to chan slog.Record
}

func (l lines) Handle(_ context.Context, r slog.Record) error { l.to <- r; return nil }
func (l lines) WithAttrs(all []slog.Attr) slog.Handler        { return lines{l.Handler.WithAttrs(all), l.to} }
func (l lines) WithGroup(name string) slog.Handler            { return lines{l.Handler.WithGroup(name), l.to} }

// A session logs to slog.
func TestSession(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	to := make(chan slog.Record, 100)
	s, _ := f.Session(&concurrency.SessionOptions{
		TTL: 300 * time.Second, Logger: slogkit.Logger(lines{slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelInfo}), to}),
	})
	require.NoError(t, f.RevokeLease(testkit.Context(t), s.Lease()))
	lost := testkit.Got(t, to, "the loss")
	require.Equal(t, slog.LevelWarn, lost.Level)
	require.Contains(t, lost.Message, "the session lost its lease")
	found := testkit.Got(t, to, "the new lease")
	require.Equal(t, slog.LevelInfo, found.Level)
}
