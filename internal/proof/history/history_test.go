package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

func recorded(t *testing.T, r *history.Recorder) *history.History {
	t.Helper()
	h, err := r.History()
	require.NoError(t, err)
	return h
}

// permit is held until it is not.
type permit struct {
	mu    sync.Mutex
	err   error
	until time.Time
}

func (p *permit) Err() error          { p.mu.Lock(); defer p.mu.Unlock(); return p.err }
func (p *permit) Deadline() time.Time { return p.until }
func (p *permit) set(err error)       { p.mu.Lock(); defer p.mu.Unlock(); p.err = err }

// TestBelief walks a holder through its life: what is recorded errs on the side
// that makes the belief shorter.
func TestBelief(t *testing.T) {
	t.Parallel()
	r := history.NewRecorder()
	c := r.Client("c1")
	call := c.Call(history.Event{Name: history.Acquire, Gate: "semaphore/a", Weight: 2, ID: "x"})
	granted := call.Granted(7)
	after := hostclock.Now()
	p := &permit{until: time.Now().Add(time.Minute)}
	require.True(t, granted.Check(p))
	asked := hostclock.Now()
	p.set(errors.New("lost"))
	require.False(t, granted.Check(p))
	granted.End(history.Lost)
	granted.End(history.Released)

	spans := recorded(t, r).Beliefs()
	require.Len(t, spans, 1)
	s := spans[0]
	require.LessOrEqual(t, s.From, after)
	require.GreaterOrEqual(t, s.To, after, "the belief was confirmed after the grant")
	require.LessOrEqual(t, s.To, asked, "and never after the last yes")
	require.Equal(t, history.Lost, s.Ended.Cause, "the first end counts")
	require.InDelta(t, hostclock.At(p.until), s.Ended.Until, float64(time.Second))
	require.Equal(t, "semaphore/a 2 x 7", fmt.Sprint(s.Granted.Gate, " ", s.Granted.Weight, " ", s.Granted.ID, " ", s.Granted.Token))
	require.Empty(t, s.Again)
	require.True(t, s.Confirmed)

	p.set(nil)
	require.True(t, granted.Check(p), "a permit that comes back from the dead")
	require.Len(t, recorded(t, r).Beliefs()[0].Again, 1)
}

func TestOps(t *testing.T) {
	t.Parallel()
	r := history.NewRecorder()
	c := r.Client("c#1")
	known := errors.New("known")
	definite := func(err error) bool { return errors.Is(err, known) }
	calls := map[string]*history.Call{}
	for _, name := range []string{"ok", "fail", "unknown", "open"} {
		calls[name] = c.Call(history.Event{Name: name, Gate: "semaphore/a", Token: 3, Limit: 4})
	}
	calls["unknown"].Done(context.Canceled, definite)
	calls["fail"].Done(known, definite)
	calls["ok"].Done(nil, definite)
	got := map[string]history.Outcome{}
	for _, op := range recorded(t, r).Ops() {
		got[op.Call.Name] = op.Outcome()
		if op.Return != nil {
			require.Equal(t, "semaphore/a 3 4", fmt.Sprint(op.Return.Gate, " ", op.Return.Token, " ", op.Return.Limit))
			require.Equal(t, op.Return.At, op.Ended())
		} else {
			require.Greater(t, op.Ended(), hostclock.Now())
		}
	}
	require.Equal(t, map[string]history.Outcome{"ok": history.OK, "fail": history.Fail, "unknown": history.Unknown, "open": history.Unknown}, got)

	client, op, ok := history.ParseTag(calls["ok"].Tag())
	require.True(t, ok)
	require.Equal(t, "c#1 1", fmt.Sprint(client, " ", op)[:5])
	_, _, ok = history.ParseTag("a note")
	require.False(t, ok)
}

// TestRecorderIsConcurrent: many goroutines, none of whose events are lost.
func TestRecorderIsConcurrent(t *testing.T) {
	t.Parallel()
	r := history.NewRecorder()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := r.Client(fmt.Sprint(i))
			for range 100 {
				c.Call(history.Event{Name: history.Status}).Done(nil, nil)
			}
		})
	}
	wg.Wait()
	h := recorded(t, r)
	require.Len(t, h.Events, 1600)
	for _, op := range h.Ops() {
		require.Equal(t, history.OK, op.Outcome())
		require.GreaterOrEqual(t, op.Ended(), op.Call.At)
	}
}

// TestFiles: what was written is what is read, keys that are no text included,
// and the histories of two processes make one.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	streamed := filepath.Join(dir, "streamed.jsonl")
	f, err := os.OpenFile(streamed, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	r := history.NewRecorder()
	r.Stream(f)
	r.Set("seed", "42")
	finish := r.Begin(history.Event{Name: "revoke", Lease: 5, Attr: map[string]string{"key": "k"}})
	r.Count("expiries", 2)
	r.Add(history.Event{Kind: history.KindPut, Rev: 9, KV: &history.KV{Key: "\xff<&>", Value: "ä\n", Create: 9, Version: 1, Lease: 5}})
	finish()
	finish()
	r.Count("expiries", 1)
	require.NoError(t, f.Close())

	other := history.NewRecorder()
	other.Mark(history.MarkHealthy)
	whole := filepath.Join(dir, "whole.jsonl")
	require.NoError(t, recorded(t, other).WriteFile(whole))

	merged, err := history.ReadFiles(streamed, whole)
	require.NoError(t, err)
	require.Equal(t, history.Merge(recorded(t, r), recorded(t, other)).Events, merged.Events)
	require.Equal(t, "42", merged.Setting("seed"))
	require.Equal(t, map[string]string{"ed": "42"}, merged.Settings("se"))
	require.Equal(t, map[string]int64{"expiries": 3}, merged.Counts())
	require.Len(t, merged.Nemeses(), 1)
	require.GreaterOrEqual(t, merged.Nemeses()[0].End, merged.Nemeses()[0].Begin.At)
	require.Len(t, merged.Marks(history.MarkHealthy), 1)
}

func TestReadDamaged(t *testing.T) {
	t.Parallel()
	h, err := history.Read(bytes.NewBufferString("{\"at\":2,\"kind\":\"mark\"}\n\n{\"at\":1,\"kind\":\"mark\"}\n{\"at\":3,\"ki"))
	require.NoError(t, err, "the last line of a killed process may be cut off")
	require.Len(t, h.Events, 2)
	require.EqualValues(t, 1, h.Events[0].At)
	_, err = history.Read(bytes.NewBufferString("{\"at\":3,\"ki\n{\"at\":2,\"kind\":\"mark\"}\n"))
	require.ErrorContains(t, err, "line 1")
}
