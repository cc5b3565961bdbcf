package entry

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Agreement is the limit of one program beside that which is stored: of a semaphore, or the default of all keys of a
// limiter.
type Agreement struct {
	Session *engine.Session
	Stored  interface {
		Read(context.Context) (l limit.Limit, ok bool, err error)
		Init(ctx context.Context, n int64, rate record.Rate) (limit.Limit, error)
	}
	Name       string
	Level      queue.Level
	Limit      int64
	Adopt      bool           // the stored one is accepted as it is
	Adopted    *limit.Adopted // of the session, for this name and level
	Keys       *Keys          // of a limiter, or nil
	Total      *Agreement     // of all keys of a limiter together, or nil
	Totals     limit.Setting  // of a limiter: what is stored of a total
	MaxWaiters int            // of a total: how many may wait for it, or 0

	settled atomic.Bool
}

// Settle records that the stored limit was compared with the program's, or was set by it.
func (a *Agreement) Settle() { a.settled.Store(true) }

// Settled reports whether it was.
func (a *Agreement) Settled() bool { return a.settled.Load() }

// agreed reports whether all stored limits were compared with the program's.
func (a *Agreement) agreed() bool { return a.Settled() && (a.Total == nil || a.Total.Settled()) }

// Mismatch is a refusal because a stored limit differs from the program's.
type Mismatch struct {
	Name           string
	Level          queue.Level
	Stored, Wanted int64 // of a total, 0 if there is none
}

func (*Mismatch) Error() string { return "the limit in etcd differs" }

// admits compares a request with the limit before anything is written. The first call compares the stored limits
// with the program's.
func (a *Agreement) admits(ctx context.Context, q *queue.Queue, weight int64) error {
	for own := a; own != nil; own = own.Total {
		if own.Settled() {
			continue
		}
		if err := own.check(ctx, q, weight); err != nil {
			return err
		}
		own.Settle()
	}
	if seen := q.Limit.Seen(); weight > 1 && (seen == nil || rank.TooHeavy(weight, seen.N)) {
		// It may have been raised since this process last saw it.
		stored, known, err := q.Limit.Read(ctx)
		if err != nil {
			return err
		}
		if known && rank.TooHeavy(weight, stored.N) {
			return &queue.TooHeavy{At: q.Level(), Weight: weight, Most: stored.N}
		}
	}
	return nil
}

// check compares the stored limit with the program's. It stores the program's if none is stored and that admits the
// weight, or the limit that the key of a limiter has of its own.
func (a *Agreement) check(ctx context.Context, q *queue.Queue, weight int64) error {
	stored, known, err := a.Stored.Read(ctx)
	if err == nil && !known {
		most := a.Limit
		if rank.TooHeavy(weight, most) && a.Level == queue.AtKey {
			most, err = a.ofKey(ctx, q)
		}
		if err == nil && rank.TooHeavy(weight, most) {
			return &queue.TooHeavy{At: a.Level, Weight: weight, Most: most}
		}
		if err == nil {
			stored, err = a.Stored.Init(ctx, a.Limit, record.Rate{})
		}
	}
	if err != nil {
		return err
	}
	if stored.Total != (a.Total != nil) {
		return a.oneSided(ctx, stored.Total)
	}
	switch {
	case stored.Agrees(a.Limit):
	case a.Adopt:
		a.adopt(stored.N)
	default:
		return &Mismatch{a.Name, a.Level, stored.N, a.Limit}
	}
	return nil
}

// ofKey returns the limit of a key while no default is stored: its own, or the program's.
func (a *Agreement) ofKey(ctx context.Context, q *queue.Queue) (int64, error) {
	own, stored, err := q.Limit.Read(ctx)
	if err == nil && !stored {
		return a.Limit, nil
	}
	return own.N, err
}

// oneSided refuses a program with a total whose limiter in etcd has none, or the reverse.
func (a *Agreement) oneSided(ctx context.Context, stored bool) error {
	m := &Mismatch{Name: a.Name, Level: queue.AtTotal}
	if !stored {
		m.Wanted = a.Total.Limit
		return m
	}
	l, _, err := a.Totals.Read(ctx)
	if err != nil {
		return err
	}
	m.Stored = l.N
	return m
}

// adopt logs the limit that is in force in place of the program's. A limit of 0 asks for none.
func (a *Agreement) adopt(stored int64) {
	if a.Limit != 0 && a.Adopted.IsNew(stored) {
		a.Session.Log().Info("the limit in etcd is in force, and not the one of this program", zap.String("name", a.Name), zap.String("level", string(a.Level)),
			zap.Int64("in_etcd", stored), zap.Int64("in_program", a.Limit), zap.String("changed_by", SetBy(a.Level)))
	}
}

// SetBy names the method by which programs change the limit of a level.
func SetBy(l queue.Level) string {
	switch l {
	case queue.AtKey:
		return "SetDefault"
	case queue.AtTotal:
		return "SetLimit of Total"
	}
	return "SetLimit"
}
