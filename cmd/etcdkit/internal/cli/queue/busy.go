package queue

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Busy is a queue in a table of the busiest.
type Busy struct {
	Name       string    `json:"name"`
	Limit      int64     `json:"limit"`
	Stored     bool      `json:"stored"` // whether a limit is stored; that of a key may be the limiter's default
	Paused     bool      `json:"paused"` // by a limit of 0
	Used       int64     `json:"used"`
	Waiting    int       `json:"waiting"`
	OldestWait time.Time `json:"oldest_wait,omitzero"`
	OldestHold time.Time `json:"oldest_hold,omitzero"`
	Of         Subject   `json:"-"`
	Unreadable string    `json:"unreadable,omitempty"` // why a limit that is stored cannot be read
}

func busy(of Subject, from *fleet.Queue) Busy {
	q := from.Now
	return Busy{
		of.String(), q.Limit, q.Known && !of.Fixed(), q.Known && q.Limit == 0, q.Used, q.Waiting,
		record.Time(q.OldestWait).UTC(), record.Time(q.OldestHold).UTC(), of, Why(q.Unreadable),
	}
}

// Why returns the text of an error, or "" for nil.
func Why(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Unreadable returns an error for a limit that is needed, and cannot be read for that reason; nil is none.
func Unreadable(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", limit.ErrUnreadable, why)
}

// LimitText is the limit in a table.
func (b Busy) LimitText() string {
	switch {
	case b.Paused:
		return "paused"
	case b.Unreadable != "":
		return "unreadable"
	case !b.Stored && !b.Of.Fixed():
		return "-"
	}
	return strconv.FormatInt(b.Limit, 10)
}

// Busiest returns the queues of a namespace, the keys and totals of limiters among them, the oldest wait first and
// elections last. A request that waits for the total of a limiter waits there, and uses a permit of its key.
func Busiest(s *fleet.State) (all []Busy) {
	for id, q := range s.Queues {
		all = append(all, busy(Subject{Kind: concurrency.QueueKind(id.Label()), Name: id.Name}, q))
	}
	for name, l := range s.Limiters {
		if l.Total != nil {
			all = append(all, busy(Subject{Kind: concurrency.KindLimiter, Name: name}, l.Total))
		}
		all = append(all, BusyKeys(name, l)...)
	}
	sortBusy(all)
	return all
}

// BusyKeys returns the keys of a limiter.
func BusyKeys(name string, l *fleet.Limiter) (all []Busy) {
	for key, q := range l.Keys {
		all = append(all, busy(Subject{Kind: concurrency.KindLimiter, Name: name, Key: key}, q))
	}
	sortBusy(all)
	return all
}

func sortBusy(all []Busy) {
	slices.SortFunc(all, func(a, b Busy) int { return a.rank().Compare(b.rank()) })
}

func (b Busy) rank() fleet.Rank {
	return fleet.Rank{Election: b.Of.Kind == concurrency.KindElection, OldestWait: b.OldestWait, Used: b.Used, Name: b.Name}
}
