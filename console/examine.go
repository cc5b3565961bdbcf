package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// fact is one thing that is known of the target of an action: a text, or a time.
type fact struct {
	Label, Text string
	Since, At   time.Time
}

// target is what an action is about, as it is now.
type target struct {
	facts []fact
	quality
	seen     string // identifies what an action depends on
	before   string // what it replaces, or ""
	waits    bool   // it is a request that has no permit
	revision int64  // of the record, or 0
	record   idempotency.Record
}

// see sets what an action depends on: if it differs later, the action is another one than the page has shown.
func (t *target) see(state ...any) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", state))
	t.seen = base64.RawURLEncoding.EncodeToString(sum[:12])
}

// say adds a text that is not empty.
func (t *target) say(label, text string) {
	if text != "" {
		t.facts = append(t.facts, fact{Label: label, Text: text})
	}
}

// since adds a time that has passed, if it is known.
func (t *target) since(label string, at time.Time) {
	if !at.IsZero() {
		t.facts = append(t.facts, fact{Label: label, Since: at})
	}
}

// examine reads what an action is about, so that the operator sees what it ends or changes. The error is a notFound if
// that does not exist any more.
func (q request) examine(o order) (target, error) {
	ctx, cancel := context.WithTimeoutCause(q.Context(), firstWait, errSlow)
	defer cancel()
	t := target{quality: quality{asOf: time.Now()}}
	s, name, err := o.subject()
	if err != nil {
		return t, err
	}
	switch o.Verb {
	case SetLimit:
		err = q.examineLimit(ctx, &t, s, o.Target)
	case RequestStop, Evict:
		err = q.examineRequest(ctx, &t, s, o.Target)
	case EndSession:
		err = q.examineSession(ctx, &t, name)
	case Resolve, Delete:
		err = q.examineRecord(ctx, &t, name, o)
	default:
		err = q.examineJob(ctx, &t, name, o)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t, err
}

// still examines the target of a form again, and returns an error if it is not what the form has shown.
func (q request) still(o order) (target, error) {
	at, err := q.examine(o)
	if err == nil && o.seen != "" && at.seen != o.seen {
		q.console.shared.drop() // its page shows what is
		err = changed{fmt.Errorf("%s of %s: nothing was done, since what the page has shown of it has changed meanwhile; look at it again", o.Verb, o.action().Name)}
	} else if err != nil {
		err = fmt.Errorf("nothing was done: %w", err)
	}
	return at, err
}

// statusOf returns the state of a queue with its leases: as all viewers have it for a page, and of now before an action.
func (q request) statusOf(ctx context.Context, s subject) (concurrency.Status, quality, error) {
	status := func(ctx context.Context) (concurrency.Status, error) {
		of, err := q.console.of(s)
		if err != nil {
			return concurrency.Status{}, err
		}
		return of.Status(ctx, concurrency.CheckLeases())
	}
	if reads(q.Request) {
		return read(q, "queue/"+s.String(), status)
	}
	now := time.Now()
	st, err := status(ctx)
	return st, quality{asOf: now}, err
}

// examineLimit adds the limit that is changed, and what is below it.
func (q request) examineLimit(ctx context.Context, t *target, s subject, of string) error {
	if s.kind == concurrency.KindLimiter && s.key == "" && of != total {
		return q.examineDefault(ctx, t, s.name)
	}
	if _, err := q.console.limited(s); err != nil {
		return err
	}
	st, how, err := q.statusOf(ctx, s)
	if err != nil {
		return err
	}
	t.quality = how
	t.limit("Limit now", st.Limit, st.Stored, st.Unreadable)
	t.say("Used", strconv.Itoa(st.Used))
	t.say("Waiting", strconv.Itoa(len(st.Waiters)))
	if of == byDefault {
		return examineClear(ctx, q, t, s)
	}
	return nil
}

// limit adds a limit, or why one that is stored cannot be read.
func (t *target) limit(label string, n int, stored bool, unreadable error) {
	t.see(n, stored, unreadable)
	switch {
	case unreadable != nil:
		t.say(label, unreadable.Error())
	case stored:
		t.before = strconv.Itoa(n)
		t.say(label, t.before)
	default:
		t.say(label, "none is stored")
	}
}

// examineDefault adds the default limit of a limiter.
func (q request) examineDefault(ctx context.Context, t *target, name string) error {
	resp, err := q.console.inner.Read(ctx, q.console.inner.Space().Limiter(name).Default)
	if err != nil {
		return err
	}
	var now mirror.LimitRecord
	if len(resp.Kvs) > 0 {
		now = mirror.ReadLimitRecord(resp.Kvs[0])
	}
	t.limit("Default limit now", int(now.Limit.Limit), now.Rev != 0, now.Unreadable())
	list, _, err := glance(q, "default/"+name, func(state *fleet.State) keyList {
		return keysOf(subject{kind: concurrency.KindLimiter, name: name}, state.Limiters[name])
	})
	t.say("Keys in use", strconv.Itoa(list.InUse))
	t.say("Used, by all keys", strconv.FormatInt(list.Used, 10))
	t.say("Waiting at their key", strconv.Itoa(list.Waiting))
	return err
}

// examineRequest adds the owner of a request, its note, and since when it holds or waits.
func (q request) examineRequest(ctx context.Context, t *target, s subject, token string) error {
	st, how, err := q.statusOf(ctx, s)
	if err != nil {
		return err
	}
	t.quality = how
	is := func(r concurrency.Request) bool { return strconv.FormatInt(r.Token, 10) == token }
	requests, i := st.Holders, slices.IndexFunc(st.Holders, is)
	if t.waits = i < 0; t.waits {
		requests, i = st.Waiters, slices.IndexFunc(st.Waiters, is)
	}
	if i < 0 {
		why := "it has ended"
		if s.kind == concurrency.KindLimiter {
			why += ", or was admitted, and has another token since"
		}
		return notFound{fmt.Errorf("%s has no request with token %s: %s", s, token, why)}
	}
	r := requests[i]
	t.see(t.waits)
	t.say("Process", r.Owner)
	t.say("ID", r.ID)
	t.say("Note", r.Note)
	t.say("Weight", strconv.Itoa(r.Weight))
	switch {
	case !t.waits:
		held, _, _ := look(q, "held/"+s.String(), func(state *fleet.State) map[int64]int64 { return heldSince(s, state) })
		since := record.Time(held[r.Token])
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
	if by := r.ExpiresBy; !by.IsZero() {
		t.facts = append(t.facts, fact{Label: "Free at the latest, if its process is dead", At: by})
	}
	return nil
}

// examineJob adds what the job does, its pause, and which process has the run that is unlocked.
func (q request) examineJob(ctx context.Context, t *target, name string, o order) error {
	keys := q.console.inner.Space().Job(name)
	resp, err := q.console.inner.Read(ctx, keys.Pause())
	if err != nil {
		return err
	}
	paused, depends := resp.Kvs, resp.Kvs
	if o.Verb == Unlock && o.Target == "" { // it ends a cooldown
		if resp, err = q.console.inner.Read(ctx, keys.Cooldown()); err != nil {
			return err
		}
		depends = resp.Kvs
	}
	type jobNow struct {
		state string
		runs  []runRow
	}
	now, _, err := glance(q, "now/"+name, func(state *fleet.State) (now jobNow) {
		if j := state.Jobs[name]; j != nil && !j.Forgotten() {
			now = jobNow{stateOf(j), runsOf(j)}
		}
		return now
	})
	t.say("Job", now.state)
	t.pause(paused)
	if o.Target == "" { // a run has its token
		t.see(revisionOf(depends))
	}
	for _, run := range now.runs {
		if run.Token != 0 && strconv.FormatInt(run.Token, 10) == o.Target {
			t.say("Process", run.Owner)
			t.since("Started", run.Start)
		}
	}
	return err
}

// examineSession adds the process of a session, and what ends with it.
func (q request) examineSession(ctx context.Context, t *target, name string) error {
	lease, err := leaseOf(name)
	if err != nil {
		return err
	}
	alive, err := q.console.inner.Read(ctx, q.console.inner.Space().Session(lease).Alive())
	if err == nil && len(alive.Kvs) == 0 {
		err = notFound{fmt.Errorf("no live session has the lease %s: it has ended", name)}
	}
	if err != nil {
		return err
	}
	t.see(revisionOf(alive.Kvs))
	of, _, err := glance(q, "process/"+name, func(s *fleet.State) processView { return processOf(s, lease) })
	t.say("Process", of.Owner)
	t.since("Its session lives since", of.Since)
	mayRead := q.reader()
	_, holds := permitted(of.holds, mayRead)
	_, waits := permitted(of.waits, mayRead)
	t.say("Holds", andHidden(holds, len(of.holds)))
	t.say("Waits", andHidden(waits, len(of.waits)))
	shown := 0
	for _, thing := range of.things {
		if mayRead(thing.subject) {
			shown++
			t.say(thing.Kind, thing.Name)
		}
	}
	if hidden := len(of.things) - shown; hidden > 0 {
		t.say("Jobs and attempts that you may not see", strconv.Itoa(hidden))
	}
	return err
}

// andHidden returns how many there are, and how many of them the viewer may not see.
func andHidden(shown, all int) string {
	if shown == all {
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d, and %d that you may not see", shown, all-shown)
}

// glance is look for what a page shows beside that on which its action depends. The action itself waits for it only a
// moment, and is made without it.
func glance[T any](q request, key string, fn func(*fleet.State) T) (T, quality, error) {
	if reads(q.Request) {
		return look(q, key, fn)
	}
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	q.Request = q.WithContext(ctx)
	found, how, _ := look(q, key, fn)
	return found, how, nil
}

// revisionOf returns the revision of a key that was read, or 0 if it does not exist.
func revisionOf(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].ModRevision
}

// pause adds the stored pause of a job.
func (t *target) pause(stored []*mvccpb.KeyValue) {
	for _, kv := range stored {
		p, ok := record.DecodePause(kv.Value)
		if !ok {
			t.say("Pause", record.Why(string(kv.Key), kv.Value).Error())
		}
		t.say("Paused by", p.By)
		t.say("Reason of the pause", p.Reason)
		t.since("Paused since", record.Time(p.AtMS))
	}
}
