package console

import (
	"context"
	"errors"
	"strconv"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// byDefault is the target of an action that removes the limit of a key of a limiter, which has the default again.
const byDefault = "default"

// clears reports whether an action removes the limit of a key.
func (o order) clears() bool { return o.Verb == SetLimit && o.Target == byDefault }

// clearable reports whether a page offers to remove the limit of a key.
func clearable(q request, s subject) bool {
	if s.key == "" || q.console.opts.may(q.Request, Action{Verb: SetLimit, Name: s.String(), Target: byDefault}) != nil {
		return false
	}
	own, _, err := look(q, "own/"+s.String(), func(state *fleet.State) bool {
		of := queueIn(s, state)
		return of != nil && of.Own()
	})
	return err == nil && own
}

// examineClear adds the default that a key gets, and returns an error if it has it already.
func examineClear(ctx context.Context, q request, t *target, s subject) error {
	keys := q.console.inner.Space().Limiter(s.name)
	resp, err := q.console.inner.Read(ctx, keys.Key(s.key).Limit)
	if err != nil {
		return err
	}
	if len(resp.Kvs) > 0 {
		if own, ok := record.DecodeLimit(resp.Kvs[0].Value); !ok || own.Inherit {
			resp.Kvs = nil
		}
	}
	if len(resp.Kvs) == 0 {
		return changed{errors.New("the key has no limit of its own that can be read")}
	}
	if resp, err = q.console.inner.Read(ctx, keys.Default); err != nil {
		return err
	}
	text := "none is stored: nothing is admitted"
	if len(resp.Kvs) > 0 {
		if l, ok := record.DecodeLimit(resp.Kvs[0].Value); ok {
			text = strconv.FormatInt(l.Limit, 10)
		}
	}
	t.see(text, t.before)
	t.say("Default limit", text)
	return nil
}
