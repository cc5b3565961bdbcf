package concurrency

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// agreement is the limit of one program beside that which is stored: of a semaphore, or the default
// of all keys of a limiter.
type agreement struct {
	stored interface {
		Read(context.Context) (l limit.Limit, ok bool, err error)
		Init(ctx context.Context, n int64, rate record.Rate) (limit.Limit, error)
	}
	name    string
	level   Level
	limit   int64
	adopt   bool
	adopted *adopted    // of the session, for this name and level
	checked atomic.Bool // the stored limit was compared with ours
	waiters int         // KeyedLimiterOptions.MaxTotalWaiters, of a total
	total   *agreement  // of all keys of a limiter together, or nil
	totals  limit.Setting
	keys    *keyCap // of a limiter, or nil
}

// agreed reports whether the stored limits were compared with this program's.
func (a *agreement) agreed() bool {
	return a.checked.Load() && (a.total == nil || a.total.checked.Load())
}

// check compares the stored limit with this program's. It stores this program's if none is stored.
func (a *agreement) check(ctx context.Context, log *zap.Logger, weight int64) error {
	stored, known, err := a.stored.Read(ctx)
	if err == nil && !known {
		if rank.TooHeavy(weight, a.limit) {
			return tooHeavy(a.level, weight, a.limit)
		}
		stored, err = a.stored.Init(ctx, a.limit, record.Rate{})
	}
	if err != nil {
		return err
	}
	if stored.Total != (a.total != nil) {
		return a.oneSided(ctx, stored.Total)
	}
	switch {
	case stored.Agrees(a.limit):
	case a.adopt:
		a.adopted.limit(log, a, stored.N)
	default:
		return &LimitMismatchError{Name: a.name, Level: a.level, Stored: int(stored.N), Wanted: int(a.limit)}
	}
	return nil
}

// oneSided returns the error of a program with a total whose limiter in etcd has none, or the
// reverse.
func (a *agreement) oneSided(ctx context.Context, stored bool) error {
	e := &LimitMismatchError{Name: a.name, Level: LevelTotal}
	if !stored {
		e.Wanted = int(a.total.limit)
		return e
	}
	l, _, err := a.totals.Read(ctx)
	if err != nil {
		return err
	}
	e.Stored = int(l.N)
	return e
}
