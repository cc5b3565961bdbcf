package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// fact is one thing that is known of the target of an action: a text, or a time.
type fact struct {
	Label, Text string
	Since, At   time.Time
}

// target is what an action is about, as it is now.
type target struct {
	facts    []fact
	asOf     time.Time
	waits    bool  // it is a request that has no permit
	revision int64 // of the record, or 0
}

// say adds a text that is not empty.
func (t *target) say(label, text string) {
	if text != "" {
		t.facts = append(t.facts, fact{Label: label, Text: text})
	}
}

// since adds a time that has passed, if it is known.
func (t *target) since(label string, at time.Time) {
	if at = shown(at); !at.IsZero() {
		t.facts = append(t.facts, fact{Label: label, Since: at})
	}
}

// examine reads what an action is about, so that the operator sees what it ends or changes. The error is a notFound if
// that does not exist any more.
func (q request) examine(o order) (target, error) {
	ctx, cancel := context.WithTimeoutCause(q.Context(), firstWait, errSlow)
	defer cancel()
	t := target{asOf: time.Now()}
	s, name, err := o.subject()
	if err != nil {
		return t, err
	}
	switch o.Verb {
	case SetLimit:
		err = q.examineLimit(ctx, &t, s, o.Target)
	case RequestStop, Evict:
		err = q.examineRequest(ctx, &t, s, o.Target)
	case Resolve, Delete:
		err = q.examineRecord(ctx, &t, name, idempotency.Ref(o.Target))
	default:
		err = q.examineJob(&t, name, o.Target)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t, err
}

// examineLimit adds the limit that is changed, and what is below it.
func (q request) examineLimit(ctx context.Context, t *target, s subject, of string) error {
	if s.kind == concurrency.KindLimiter && s.key == "" && of != total {
		list, _, err := look(q, "default/"+s.name, func(state *fleet.State) keyList { return keysOf(s, state.Limiters[s.name]) })
		if list.Default == "" {
			list.Default = "none is stored"
		}
		t.say("Default limit now", list.Default)
		t.say("Keys in use", strconv.Itoa(list.InUse))
		t.say("Used, by all keys", strconv.FormatInt(list.Used, 10))
		t.say("Waiting at their key", strconv.Itoa(list.Waiting))
		return err
	}
	sm, err := q.console.limited(s)
	if err != nil {
		return err
	}
	st, err := sm.Status(ctx)
	limit := "none is stored"
	if st.Stored {
		limit = strconv.Itoa(st.Limit)
	}
	t.say("Limit now", limit)
	t.say("Used", strconv.Itoa(st.Used))
	t.say("Waiting", strconv.Itoa(len(st.Waiters)))
	return err
}

// examineRequest adds the owner of a request, its note, and since when it holds or waits.
func (q request) examineRequest(ctx context.Context, t *target, s subject, token string) error {
	of, err := q.console.of(s)
	if err != nil {
		return err
	}
	st, err := of.Status(ctx, concurrency.CheckLeases())
	if err != nil {
		return err
	}
	is := func(r concurrency.Request) bool { return strconv.FormatInt(r.Token, 10) == token }
	requests, i := st.Holders, slices.IndexFunc(st.Holders, is)
	if t.waits = i < 0; t.waits {
		requests, i = st.Waiters, slices.IndexFunc(st.Waiters, is)
	}
	if i < 0 {
		return notFound{fmt.Errorf("%s has no request with token %s: it has ended", s, token)}
	}
	r := requests[i]
	t.say("Process", r.Owner)
	t.say("ID", r.ID)
	t.say("Note", r.Note)
	t.say("Weight", strconv.Itoa(r.Weight))
	switch {
	case !t.waits:
		held, _, _ := look(q, "held/"+s.String(), func(state *fleet.State) map[int64]int64 { return heldSince(s, state) })
		since := when(held[r.Token])
		if since.IsZero() {
			since = r.Requested // which bounds the time of the grant
		}
		t.since("Holds its permit since, at the earliest", since)
	case r.WaitsFor == concurrency.LevelTotal:
		t.since("Admitted at its key, waits for the total since", r.Requested)
	default:
		t.since("Waits since", r.Requested)
	}
	t.since("Renewed", r.Renewed.Truncate(time.Second))
	if by := shown(r.ExpiresBy); !by.IsZero() {
		t.facts = append(t.facts, fact{Label: "Free at the latest, if its process is dead", At: by})
	}
	return nil
}

// examineRecord adds the request that the record is of, and its latest attempt.
func (q request) examineRecord(ctx context.Context, t *target, store string, ref idempotency.Ref) error {
	st, err := q.console.store(store)
	if err != nil {
		return err
	}
	r, _, err := st.Get(ctx, ref)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return notFound{err}
	case errors.Is(err, idempotency.ErrInvalid):
		return badRequest{err}
	case err != nil && !errors.Is(err, idempotency.ErrUnreadable): // whose record is there
		return err
	}
	t.revision = r.Revision
	t.say("Reference", string(r.Ref))
	t.say("State", r.State.String())
	t.say("Operation", r.Op)
	t.say("Scope", r.Scope)
	t.say("Attempt", strconv.Itoa(r.Attempt))
	t.say("Process", r.Owner)
	t.since("Started", r.Started)
	t.since("Ended", r.Ended)
	t.say("Failure", r.Failure)
	return nil
}

// examineJob adds what the job does, and which process has the run that is unlocked.
func (q request) examineJob(t *target, name, token string) error {
	type jobNow struct {
		state string
		runs  []runRow
	}
	now, _, err := look(q, "now/"+name, func(state *fleet.State) (now jobNow) {
		if j := state.Jobs[name]; j != nil && !j.Forgotten() {
			now = jobNow{stateOf(j), runsOf(j)}
		}
		return now
	})
	t.say("Job", now.state)
	for _, run := range now.runs {
		if run.Token != 0 && strconv.FormatInt(run.Token, 10) == token {
			t.say("Process", run.Owner)
			t.since("Started", run.Start)
		}
	}
	return err
}
