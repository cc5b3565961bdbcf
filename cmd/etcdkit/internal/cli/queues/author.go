package queues

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// author describes the change that has set a limit in force, as far as it is recorded.
type author struct {
	By     string    `json:"set_by,omitempty"`
	At     time.Time `json:"set_at,omitzero"`
	Before string    `json:"before,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// text returns the author for a table, or "".
func (a *author) text(now time.Time) string {
	if a == nil || a.By == "" {
		return ""
	}
	text := fmt.Sprintf("set by %s %s ago", operatorOf(a.By), output.Ago(now, a.At))
	if a.Before != "" {
		text += ", before " + a.Before
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// operatorOf returns the user in the name of a session of this command, and otherwise the whole name.
func operatorOf(owner string) string {
	if _, user, ok := strings.Cut(owner, " by "); ok && strings.HasPrefix(owner, "etcdkit ") {
		user, _, _ = strings.Cut(user, ", process ")
		return user
	}
	return owner
}

// authorsOf returns a function that finds the author of the limit of a queue, or of a limiter's total: nil if it is not known. A user
// without permission to read the changes gets what the limit's record has.
func authorsOf(ctx context.Context, sess *concurrency.Session) func(s queue.Subject, total bool) *author {
	s := engine.Of(sess)
	var all []record.Change
	if resp, err := s.KV().Get(ctx, s.Space().Changes(), clientv3.WithPrefix()); err == nil {
		for _, kv := range resp.Kvs {
			if c, ok := record.DecodeChange(kv.Value); ok {
				all = append(all, c)
			}
		}
	}
	return func(of queue.Subject, total bool) *author {
		key := limitKey(s.Space(), of, total)
		if key == "" {
			return nil
		}
		resp, err := s.KV().Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return nil
		}
		return authorOf(mirror.ReadLimitRecord(resp.Kvs[0]), of, total, all)
	}
}

// limitKey returns the key of a stored limit, or "" if the queue has none.
func limitKey(space keyspace.Space, s queue.Subject, total bool) string {
	switch {
	case s.Kind == concurrency.KindSemaphore:
		return space.Queue(keyspace.Semaphore, s.Name).Limit
	case s.Kind == concurrency.KindRate:
		return space.Queue(keyspace.Rate, s.Name).Limit
	case s.Kind != concurrency.KindLimiter:
		return ""
	case s.Key != "":
		return space.Limiter(s.Name).Key(s.Key).Limit
	case total:
		return space.Limiter(s.Name).Total().Limit
	}
	return space.Limiter(s.Name).Default
}

// authorOf returns the author of a stored limit: of the changes the latest one to its value, or what the record has; nil if it
// is the first limit of a program.
func authorOf(stored mirror.LimitRecord, s queue.Subject, total bool, all []record.Change) *author {
	if stored.Rev == 0 || stored.Damaged || stored.Initial {
		return nil
	}
	target := ""
	if total {
		target = "total"
	}
	var found *record.Change
	for i, c := range all {
		if c.Verb == "set-limit" && c.Name == s.String() && c.Target == target && c.Failed == "" && (found == nil || c.AtMS > found.AtMS) {
			found = &all[i]
		}
	}
	switch {
	case found != nil && sets(found.After, stored) && wrote(found, stored):
		return &author{found.By, record.Time(found.AtMS).UTC(), found.Before, found.Reason}
	case stored.By != "":
		return &author{By: stored.By, At: record.Time(stored.AtMS).UTC()}
	}
	return nil
}

// wrote reports whether a change is the one that has written a limit: another operator or program may have set the same value again,
// without a record of the change. Both have the time of one clock.
func wrote(c *record.Change, stored mirror.LimitRecord) bool {
	return stored.By == "" || stored.By == c.By && max(c.AtMS-stored.AtMS, stored.AtMS-c.AtMS) < time.Minute.Milliseconds()
}

// sets reports whether the value of a change is that of a stored limit: a number, a rate with its burst or without, or the default
// that a key has again.
func sets(after string, stored mirror.LimitRecord) bool {
	switch {
	case stored.Inherit:
		return after == cleared
	case stored.Rate.PerSecond > 0:
		rate := fmt.Sprintf("%v per second", stored.Rate.PerSecond)
		return slices.Contains([]string{rate, fmt.Sprintf("%s, burst %d", rate, stored.Rate.Burst)}, after)
	}
	n, err := strconv.ParseInt(after, 10, 64)
	return err == nil && n == stored.Limit.Limit
}

// cleared is the value of a change that has removed the limit of a key.
const cleared = "the default"
