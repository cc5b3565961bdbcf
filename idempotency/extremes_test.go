package idempotency_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A350: the greatest and the least value of each option are refused, or mean no bound.
func TestExtremeOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	const long, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for name, tt := range map[string]struct {
		o  idempotency.Options
		ok bool
	}{
		"Retain":            {idempotency.Options{Retain: long}, false},
		"no Retain":         {idempotency.Options{Retain: least}, false},
		"RetainUnknown":     {idempotency.Options{RetainUnknown: long}, false},
		"no RetainUnknown":  {idempotency.Options{RetainUnknown: least}, false},
		"MaxExecution":      {idempotency.Options{MaxExecution: long}, true},
		"no MaxExecution":   {idempotency.Options{MaxExecution: least}, false},
		"MaxResult":         {idempotency.Options{MaxResult: math.MaxInt}, false},
		"no MaxResult":      {idempotency.Options{MaxResult: math.MinInt}, false},
		"CacheBytes":        {idempotency.Options{CacheBytes: math.MaxInt}, true},
		"no CacheBytes":     {idempotency.Options{CacheBytes: math.MinInt}, true},
		"CacheFor":          {idempotency.Options{CacheFor: long}, true},
		"no CacheFor":       {idempotency.Options{CacheFor: least}, false},
		"MaxPerScope":       {idempotency.Options{MaxPerScope: math.MaxInt}, true},
		"no MaxPerScope":    {idempotency.Options{MaxPerScope: math.MinInt}, true},
		"NearQuota":         {idempotency.Options{NearQuota: math.MaxFloat64}, true},
		"NearQuota +Inf":    {idempotency.Options{NearQuota: math.Inf(1)}, true},
		"NearQuota -Inf":    {idempotency.Options{NearQuota: math.Inf(-1)}, false},
		"NearQuota NaN":     {idempotency.Options{NearQuota: math.NaN()}, false},
		"no NearQuota":      {idempotency.Options{NearQuota: -math.SmallestNonzeroFloat64}, false},
		"Quota":             {idempotency.Options{Quota: math.MaxInt64}, true},
		"all of that Quota": {idempotency.Options{Quota: math.MaxInt64, NearQuota: 1}, true},
		"no Quota":          {idempotency.Options{Quota: math.MinInt64}, false},
	} {
		s, err := idempotency.NewStore(a.sess, "x", &tt.o)
		if !tt.ok {
			require.ErrorIs(t, err, idempotency.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		for range 2 { // it runs once
			v, err := idempotency.Do(ctxT(t), s, key(name), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 7, nil })
			require.NoError(t, err, name)
			require.Equal(t, 7, v.Value, name)
		}
	}
	for name, tt := range map[string]struct {
		o  idempotency.Option
		ok bool
	}{
		"Wait":            {idempotency.Wait(long), true},
		"no Wait":         {idempotency.Wait(least), false},
		"Retain":          {idempotency.Retain(long), false},
		"no Retain":       {idempotency.Retain(least), false},
		"MaxExecution":    {idempotency.MaxExecution(long), true},
		"no MaxExecution": {idempotency.MaxExecution(least), false},
	} {
		at, _, err := a.Begin(ctxT(t), key("call "+name), nil, tt.o)
		if !tt.ok {
			require.ErrorIs(t, err, idempotency.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, at.Err(), name)
		require.NoError(t, at.Commit(ctxT(t), nil), name)
	}
}
