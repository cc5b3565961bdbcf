package permits

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// waitReports reports on standard error why a call waits: its place in the queue, and the holders, with
// their ages and the latest times at which they expire.
type waitReports struct {
	call *verb.Call
	kind concurrency.QueueKind
	sess atomic.Pointer[concurrency.Session] // of the call
}

func (r *waitReports) hooks() observe.Hooks {
	return observe.Hooks{Event: func(ctx context.Context, e observe.Event) {
		if w, ok := e.(observe.Waiting); ok {
			w.Blocking = slices.Clone(w.Blocking) // other hooks have it as well
			r.bound(ctx, w)
			fmt.Fprintln(r.call.Std.Err, output.Printable(waitingFor(r.kind, w, time.Now())))
		}
	}}
}

// bound adds until when each holder has its permit at the latest. The first report of a call has no such times,
// since most waits of a program are over before the second one.
func (r *waitReports) bound(ctx context.Context, w observe.Waiting) {
	sess := r.sess.Load()
	if sess == nil || !slices.ContainsFunc(w.Blocking, func(h observe.Holder) bool { return h.ExpiresBy.IsZero() }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.call.Etcd.Timeout)
	defer cancel()
	q, err := queue.Of(sess, queue.Subject{Kind: r.kind, Name: w.Name})
	if err != nil {
		return
	}
	st, err := q.Status(ctx, concurrency.CheckLeases())
	if err != nil {
		return
	}
	for i, h := range w.Blocking {
		for _, now := range st.Holders {
			if now.Token == h.Token {
				w.Blocking[i].ExpiresBy = now.ExpiresBy
			}
		}
	}
}

// mostBlocking is how many holders a report has at most.
const mostBlocking = 10

// waitingFor describes why a call waits.
func waitingFor(kind concurrency.QueueKind, w observe.Waiting, now time.Time) string {
	holders := len(w.Blocking)
	text := fmt.Sprintf("waiting for %s/%s: ", kind, w.Name)
	switch {
	case w.Limit == 0:
		return text + "it is paused by a limit of 0 ('etcdkit limit' changes it)"
	case holders == 0: // it is far from its admission
		return text + fmt.Sprintf("at most %d requests before this one", w.Ahead)
	case holders < mostBlocking:
		text += fmt.Sprintf("%s in the queue, behind ", output.Ordinal(max(1, w.Ahead-holders+1)))
	default:
		text += fmt.Sprintf("%d requests before this one, the oldest of ", w.Ahead)
	}
	for i, h := range w.Blocking {
		if i > 0 {
			text += ", "
		}
		if i == 2 && holders > 3 {
			text += strconv.Itoa(holders-2) + " others"
			break
		}
		text += h.Owner + " (" + output.Brief(now.Sub(h.Requested))
		if !h.ExpiresBy.IsZero() {
			text += ", until " + h.ExpiresBy.UTC().Format(time.TimeOnly) + " UTC at the latest if it does not renew"
		}
		text += ")"
	}
	return text
}
