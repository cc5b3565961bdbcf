package concurrency_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Bad input to a limiter, with a total and without, is an error at once that names what is wrong, and
// leaves nothing in etcd.
func TestBadInputOfLimiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	shut, _ := f.Session(idle())
	type options = concurrency.KeyedLimiterOptions
	made := func(limit int, o *options) func() error {
		return func() error { _, err := concurrency.NewKeyedLimiter(s, "llm", limit, o); return err }
	}
	lim, with := keyed(t, s, "llm", 1), totaled(t, s, "both", 1, 2)
	closed := totaled(t, shut, "llm", 1, 2)
	require.NoError(t, shut.Close(ctx))
	long := strings.Repeat("k", 10<<10)
	calls := func(sm *concurrency.Semaphore) map[string]func() error {
		return map[string]func() error{
			"Acquire":    func() error { _, err := sm.Acquire(ctx); return err },
			"a bounded":  func() error { _, err := sm.Acquire(ctx, concurrency.Wait(time.Hour)); return err },
			"TryAcquire": func() error { _, err := sm.TryAcquire(ctx); return err },
			"Do":         func() error { return sm.Do(ctx, nothing) },
			"SetLimit":   func() error { return sm.SetLimit(ctx, 1) },
			"Status":     func() error { _, err := sm.Status(ctx); return err },
			"Evict":      func() error { return sm.Evict(ctx, "i", "") },
			"EvictToken": func() error { return sm.EvictToken(ctx, 1, "") },
			"ReleaseID":  func() error { return sm.ReleaseID(ctx, "i") },
			"Watch": func() (last error) {
				for _, err := range sm.Watch(ctx) {
					last = err
				}
				return last
			},
		}
	}
	type row struct {
		call func() error
		is   error
		says string
	}
	invalid := func(call func() error, says string) row { return row{call, concurrency.ErrInvalid, says} }
	limited := func(lim concurrency.Limiter, key func(string) string, fn func(context.Context, string) (int, error)) func() error {
		return func() error { _, err := concurrency.Limit(lim, key, fn)(ctx, "a"); return err }
	}
	same, one := func(in string) string { return in }, func(context.Context, string) (int, error) { return 1, nil }
	rows := map[string]row{
		"limit below 0":          invalid(made(-1, nil), "limit -1 is not between"),
		"limit beyond":           invalid(made(math.MaxInt32+1, nil), "is not between"),
		"total below 1":          invalid(made(1, &options{Total: -1}), "KeyedLimiterOptions.Total of -1"),
		"total beyond":           invalid(made(1, &options{Total: math.MaxInt32 + 1}), "KeyedLimiterOptions.Total"),
		"waiters below 0":        invalid(made(1, &options{Total: 1, MaxTotalWaiters: -1}), "KeyedLimiterOptions.MaxTotalWaiters of -1"),
		"waiters without total":  invalid(made(1, &options{MaxTotalWaiters: 1}), "KeyedLimiterOptions.MaxTotalWaiters of 1 without a Total"),
		"keys below 0":           invalid(made(1, &options{MaxKeys: -1}), "KeyedLimiterOptions.MaxKeys of -1"),
		"keys beyond":            invalid(made(1, &options{MaxKeys: math.MaxInt32 + 1}), "KeyedLimiterOptions.MaxKeys"),
		"no session":             invalid(func() error { _, err := concurrency.NewKeyedLimiter(nil, "llm", 1, nil); return err }, "session is nil"),
		"no name":                invalid(func() error { _, err := concurrency.NewKeyedLimiter(s, "", 1, nil); return err }, "name is empty"),
		"closed session":         {func() error { _, err := concurrency.NewKeyedLimiter(shut, "llm", 1, nil); return err }, concurrency.ErrClosed, "llm"},
		"nil function of Do":     invalid(func() error { return lim.Key("a").Do(ctx, nil) }, "function is nil"),
		"nil limiter of Limit":   invalid(limited(nil, same, one), "arguments of Limit"),
		"nil key of Limit":       invalid(limited(lim, nil, one), "arguments of Limit"),
		"nil function of Limit":  invalid(limited(lim, same, nil), "arguments of Limit"),
		"empty key of Limit":     invalid(limited(lim, func(string) string { return "" }, one), "key is empty"),
		"nil option":             invalid(func() error { _, err := lim.Key("a").Acquire(ctx, nil); return err }, "is nil"),
		"nil limit option":       invalid(func() error { return lim.SetDefault(ctx, 1, nil) }, "is nil"),
		"default below 0":        invalid(func() error { return lim.SetDefault(ctx, -1) }, "limit -1"),
		"limit of a key below 0": invalid(func() error { return with.Key("a").SetLimit(ctx, -1) }, "limit -1"),
		"total set below 0":      invalid(func() error { return with.Total().SetLimit(ctx, -1) }, "limit -1"),
		"permit of the total":    invalid(func() error { _, err := with.Total().TryAcquire(ctx); return err }, "KeyedLimiter.Key"),
		"above the default": invalid(func() error {
			_, err := keyed(t, s, "heavy", 2).Key("a").Acquire(ctx, concurrency.Weight(3))
			return err
		}, "Weight(3)"),
		"above the total": invalid(func() error {
			_, err := totaled(t, s, "heavy2", 5, 2).Key("a").Acquire(ctx, concurrency.Weight(3))
			return err
		}, "Weight(3)"),
		"cleared, closed": {func() error { return closed.ClearLimit(ctx, "a") }, concurrency.ErrClosed, "a"},
		"default, closed": {func() error { return closed.SetDefault(ctx, 1) }, concurrency.ErrClosed, "llm"},
	}
	for name, lim := range map[string]*concurrency.KeyedLimiter{"": lim, "with a total: ": with} {
		for key, says := range map[string]string{"": "the key is empty", long: "the key \"kkkkkkkkkkkkkkkkkkkk\"… has 10240 bytes"} {
			for what, call := range calls(lim.Key(key)) {
				rows[name+what+" of a bad key: "+says] = invalid(call, says)
			}
			rows[name+"ClearLimit of a bad key: "+says] = invalid(func() error { return lim.ClearLimit(ctx, key) }, says)
		}
	}
	for what, call := range calls(closed.Key("a")) {
		rows[what+" of a closed session"] = row{call, concurrency.ErrClosed, "llm/a"}
	}
	for what, call := range calls(lim.Total()) {
		if what != "Acquire" && what != "a bounded" && what != "TryAcquire" && what != "Do" {
			rows[what+" without a total"] = invalid(call, "KeyedLimiterOptions.Total")
		}
	}
	before := f.Keys("")
	for name, r := range rows {
		err := r.call()
		require.ErrorIs(t, err, r.is, name)
		require.ErrorContains(t, err, r.says, name)
		require.Less(t, len(err.Error()), 500, name)
	}
	require.Equal(t, before, f.Keys(""))
}
