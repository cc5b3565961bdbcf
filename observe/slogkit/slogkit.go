// Package slogkit lets a session log to log/slog. The packages of etcdkit log through zap, as etcd's
// client does; a program that uses log/slog needs no configuration of zap:
//
//	logger := slogkit.Logger(slog.Default().Handler())
//	sess, err := concurrency.NewSession(opening, client, "payments", &concurrency.SessionOptions{Logger: logger})
//
// Levels, messages, times, callers and fields arrive as they are: a field is an attribute of its own
// type, a namespace of fields is a group, and a logger's name is the attribute "logger". Levels above
// error arrive as slog.LevelError + 4.
//
// Fields are converted for lines that the handler takes; a line below its level costs a comparison.
package slogkit

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logger returns a logger that writes to h, with the callers of its lines. A nil handler discards all.
// It is safe for concurrent use, as far as h is.
func Logger(h slog.Handler) *zap.Logger {
	if h == nil {
		return zap.NewNop()
	}
	return zap.New(core{h}, zap.AddCaller())
}

// core is a zapcore.Core over a handler.
type core struct{ handler slog.Handler }

// Enabled implements zapcore.Core, as do the following methods.
func (c core) Enabled(l zapcore.Level) bool { return c.handler.Enabled(context.Background(), level(l)) }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	h := c.handler
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			return core{withAttrs(h, attrs(fields[:i])).WithGroup(f.Key)}.With(fields[i+1:])
		}
	}
	return core{withAttrs(h, attrs(fields))}
}

func withAttrs(h slog.Handler, all []slog.Attr) slog.Handler {
	if len(all) == 0 {
		return h
	}
	return h.WithAttrs(all)
}

func (c core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, e.Caller.PC)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(attrs(fields)...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stack", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

func (c core) Sync() error { return nil }

// level returns the level of slog.
func level(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.DebugLevel:
		return slog.LevelDebug + slog.Level(4*(l-zapcore.DebugLevel))
	case l == zapcore.InfoLevel:
		return slog.LevelInfo
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.ErrorLevel:
		return slog.LevelError
	}
	return slog.LevelError + 4
}

// attrs returns the attributes of fields. What follows a namespace is a group.
func attrs(fields []zapcore.Field) []slog.Attr {
	all := make([]slog.Attr, 0, len(fields))
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			return append(all, slog.GroupAttrs(f.Key, attrs(fields[i+1:])...))
		}
		all = append(all, attr(f)...)
	}
	return all
}

// attr returns the attributes of one field: more than one if it is inlined.
func attr(f zapcore.Field) []slog.Attr {
	one := func(v slog.Value) []slog.Attr { return []slog.Attr{{Key: f.Key, Value: v}} }
	switch f.Type {
	case zapcore.SkipType:
		return nil
	case zapcore.StringType:
		return one(slog.StringValue(f.String))
	case zapcore.BoolType:
		return one(slog.BoolValue(f.Integer == 1))
	case zapcore.Int64Type, zapcore.Int32Type, zapcore.Int16Type, zapcore.Int8Type:
		return one(slog.Int64Value(f.Integer))
	case zapcore.Uint64Type, zapcore.Uint32Type, zapcore.Uint16Type, zapcore.Uint8Type:
		return one(slog.Uint64Value(uint64(f.Integer)))
	case zapcore.Float64Type:
		return one(slog.Float64Value(math.Float64frombits(uint64(f.Integer))))
	case zapcore.DurationType:
		return one(slog.DurationValue(time.Duration(f.Integer)))
	case zapcore.ErrorType:
		if err, ok := f.Interface.(error); ok {
			return one(slog.AnyValue(failure{err}))
		}
	}
	enc := zapcore.NewMapObjectEncoder()
	f.AddTo(enc)
	var all []slog.Attr
	for key, v := range enc.Fields {
		all = append(all, slog.Any(key, v))
	}
	return all
}

// failure is an error whose text is taken when a line is written, also if its Error panics on a nil
// pointer.
type failure struct{ error }

// LogValue implements slog.LogValuer.
func (f failure) LogValue() (v slog.Value) {
	defer func() {
		if p := recover(); p != nil {
			v = slog.StringValue(fmt.Sprintf("error whose text panics: %v", p))
		}
	}()
	return slog.StringValue(f.Error())
}

// Unwrap returns the error, for handlers that look for one.
func (f failure) Unwrap() error { return f.error }
