package concurrency_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

const (
	longest = time.Duration(math.MaxInt64)
	least   = time.Duration(math.MinInt64)
)

// A350: the greatest and the least value of each option are refused, or mean no bound: no sum with them has another sign.
func TestExtremeSessionOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t, nil)
	for name, tt := range map[string]struct {
		o  concurrency.SessionOptions
		ok bool
	}{
		"TTL":               {concurrency.SessionOptions{TTL: longest}, false},
		"no TTL":            {concurrency.SessionOptions{TTL: least}, false},
		"Margin":            {concurrency.SessionOptions{Margin: longest}, false},
		"no Margin":         {concurrency.SessionOptions{Margin: least}, false},
		"MaxPermits":        {concurrency.SessionOptions{MaxPermits: math.MaxInt}, false},
		"no MaxPermits":     {concurrency.SessionOptions{MaxPermits: math.MinInt}, false},
		"ReleaseTimeout":    {concurrency.SessionOptions{ReleaseTimeout: longest}, true},
		"no ReleaseTimeout": {concurrency.SessionOptions{ReleaseTimeout: least}, false},
		"ReportEvery":       {concurrency.SessionOptions{ReportEvery: longest}, true},
		"no ReportEvery":    {concurrency.SessionOptions{ReportEvery: least}, false},
	} {
		tt.o.Prefix = f.Root
		s, err := concurrency.NewSession(ctxT(t), c.Client, "test", &tt.o)
		if !tt.ok {
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, lock(t, s, "x").Release(ctxT(t)), name)
		require.NoError(t, s.Close(ctxT(t)), name)
	}
}

// A350: the same of the options of primitives and of calls.
func TestExtremeOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	for name, o := range map[string]concurrency.SemaphoreOptions{
		"Keep": {Keep: longest}, "no Keep": {Keep: least}, "Handover": {Handover: longest}, "no Handover": {Handover: least},
	} {
		_, err := concurrency.NewSemaphore(s, "x", 1, &o)
		require.ErrorIs(t, err, concurrency.ErrInvalid, name)
	}
	for name, tt := range map[string]struct {
		o  concurrency.KeyedLimiterOptions
		ok bool
	}{
		"Total":              {concurrency.KeyedLimiterOptions{Total: math.MaxInt}, false},
		"no Total":           {concurrency.KeyedLimiterOptions{Total: math.MinInt}, false},
		"MaxTotalWaiters":    {concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: math.MaxInt}, true},
		"no MaxTotalWaiters": {concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: math.MinInt}, false},
		"MaxKeys":            {concurrency.KeyedLimiterOptions{MaxKeys: math.MaxInt}, false},
		"greatest MaxKeys":   {concurrency.KeyedLimiterOptions{MaxKeys: math.MaxInt32}, true},
		"no MaxKeys":         {concurrency.KeyedLimiterOptions{MaxKeys: math.MinInt}, false},
	} {
		l, err := concurrency.NewKeyedLimiter(s, name, 1, &tt.o)
		if !tt.ok {
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, acquire(t, ctxT(t), l.Key("a")).Release(ctxT(t)), name)
	}
	for name, r := range map[string]concurrency.Rate{
		"NaN": {PerSecond: math.NaN(), Burst: 1}, "+Inf": {PerSecond: math.Inf(1), Burst: 1}, "-Inf": {PerSecond: math.Inf(-1), Burst: 1},
		"Burst": {PerSecond: 1, Burst: math.MaxInt}, "no Burst": {PerSecond: 1, Burst: math.MinInt},
		"greatest": {PerSecond: math.MaxFloat64, Burst: 1}, "least": {PerSecond: math.SmallestNonzeroFloat64, Burst: 1},
	} {
		_, err := concurrency.NewRateLimiter(s, "x", r, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, name)
	}
	m := sem(t, s, "calls", 1)
	for name, tt := range map[string]struct {
		o  concurrency.AcquireOption
		ok bool
	}{
		"Weight":        {concurrency.Weight(math.MaxInt), false},
		"no Weight":     {concurrency.Weight(math.MinInt), false},
		"Wait":          {concurrency.Wait(longest), true},
		"no Wait":       {concurrency.Wait(least), false},
		"MaxWaiters":    {concurrency.MaxWaiters(math.MaxInt), true},
		"no MaxWaiters": {concurrency.MaxWaiters(math.MinInt), false},
		"MaxHold":       {concurrency.MaxHold(longest), true},
		"no MaxHold":    {concurrency.MaxHold(least), false},
	} {
		p, err := m.Acquire(ctxT(t), tt.o)
		if !tt.ok {
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, p.Err(), name)
		require.True(t, p.Deadline().After(time.Now()), name)
		require.NoError(t, p.Release(ctxT(t)), name)
	}
}
