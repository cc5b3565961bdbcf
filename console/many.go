package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// actOnMany makes an action on each target that its page has shown, and answers with what became of each.
func actOnMany(c *console, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actBound)
	defer cancel()
	q := request{Request: r.WithContext(ctx), console: c}
	b, err := bulkOf(q)
	if err == nil {
		err = b.targetsOf(r.PostFormValue("targets"))
	}
	if err == nil {
		if no := c.opts.may(r, Action{Verb: Read, Name: b.subject()}); no != nil {
			err = forbidden{no}
		}
	}
	if err != nil {
		c.logRefusal(r, err)
		c.refuse(w, r, status(err), err)
		return
	}
	p := b.page()
	if wrong := b.mistake(r.PostFormValue("confirm")); wrong != "" {
		b.describe()
		p.Targets, p.Lines, p.Form, p.Alert = b.targets, linesOf(b.targets), rand.Text(), wrong+" Nothing was changed."
		c.render(w, r, "bulk", http.StatusBadRequest, frame{Title: b.title(), Namespace: c.namespace(), AsOf: c.now(), Data: p})
		return
	}
	if _, first := c.begin(cut(r.PostFormValue("form"), mostKey)); !first {
		err := changed{errors.New("this form was sent before, and its action is made once: look at what it has done")}
		c.logRefusal(r, err)
		c.refuseTo(w, r, status(err), err, b.back)
		return
	}
	p.Done, p.Failed = b.made(ctx, cut(c.opts.Actor(r), mostActor))
	p.Made, p.Targets = true, b.targets
	c.settle(ctx)
	c.render(w, r, "bulk", http.StatusOK, frame{Title: b.title(), Namespace: c.namespace(), AsOf: c.now(), Data: p})
}

func (b *bulk) title() string { return string(b.verb) + " many of " + b.name }

// describe adds what the namespace shows of the targets of a form, as far as its page shows it.
func (b *bulk) describe() {
	var found []bulkTarget
	var err error
	if b.of == "store" {
		p := b.page()
		err = b.read(&p, b.targets)
		found = p.Targets
	} else {
		found, _, err = b.look()
	}
	if err != nil {
		return // the form has the targets
	}
	mayRead := b.q.reader()
	for i, t := range b.targets {
		n := slices.IndexFunc(found, func(f bulkTarget) bool { return f.Name == t.Name && f.Target == t.Target })
		switch {
		case b.may(t) != nil || !mayRead(b.order(t).action().Name):
		case n < 0 || found[n].Revision != t.Revision || found[n].Waits != t.Waits:
			b.targets[i].What = "has ended or changed since it was shown"
		default:
			b.targets[i].What, b.targets[i].Since = found[n].What, found[n].Since
		}
	}
}

// made makes the action on all targets, and records it as one change: a record of each would push out what other operators
// have done. The log has each target.
func (b *bulk) made(ctx context.Context, actor string) (done, failed int) {
	ended := b.q.console.trail.Begin(ctx, b.change(), actor)
	b.make(ctx, actor)
	var wrong []string
	for _, t := range b.targets {
		if t.Failed != "" {
			wrong = append(wrong, t.Target)
		}
	}
	var err error
	if failed = len(wrong); failed > 0 {
		err = fmt.Errorf("%d of %d: %s; the log has why", failed, len(b.targets), strings.Join(wrong, ", "))
	}
	ended("", err)
	return len(b.targets) - failed, failed
}

// change is the record of the action.
func (b *bulk) change() record.Change {
	change := record.Change{Verb: string(b.verb), Name: b.subject(), After: b.value, Reason: b.reason}
	var targets []string
	for _, t := range b.targets {
		targets = append(targets, t.Target)
		if b.of == "process" && !slices.Contains(change.Queues, t.Name) {
			change.Queues = append(change.Queues, t.Name)
		}
	}
	change.Target = count(len(targets), "target", "targets") + ": " + strings.Join(targets, ", ")
	return change
}

// make makes the action on each target, several at a time. Waiters are ended before holders: else the end of a holder
// would admit them.
func (b *bulk) make(ctx context.Context, actor string) {
	for _, waits := range []bool{true, false} {
		var all sync.WaitGroup
		places := make(chan struct{}, bulkAtOnce)
		states := map[string]func() (concurrency.Status, error){} // of the queues of holders
		for i, t := range b.targets {
			if t.Waits != waits {
				continue
			}
			if states[t.Name] == nil {
				states[t.Name] = sync.OnceValues(func() (concurrency.Status, error) { return b.now(ctx, t) })
			}
			now := states[t.Name]
			if waits { // a release may admit it while others are ended
				now = func() (concurrency.Status, error) { return b.now(ctx, t) }
			}
			all.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				b.makeOne(ctx, &b.targets[i], now, actor)
			})
		}
		all.Wait()
	}
}

// makeOne makes the action on one target, and logs what became of it.
func (b *bulk) makeOne(ctx context.Context, t *bulkTarget, now func() (concurrency.Status, error), actor string) {
	c := b.q.console
	field := func(name, text string) zap.Field { return zap.String(name, cut(text, mostReason)) }
	fields := []zap.Field{field("action", string(b.verb)), field("name", b.order(*t).action().Name), field("target", t.Target), field("of", b.subject()),
		zap.String("actor", actor), field("value", b.value), field("reason", b.reason)}
	if err := b.may(*t); err != nil {
		t.Failed = err.Error()
		c.opts.Logger.Warn("an action of the console was refused", append(fields, zap.Error(err))...)
		return
	}
	err := ctx.Err()
	if err == nil && b.of == "process" {
		err = b.still(*t, now)
	}
	if err == nil && b.verb == Resolve {
		err = b.spares(ctx, *t)
	}
	if err == nil {
		err = c.bounded(ctx, b.order(*t), target{revision: t.Revision}, actor)
	}
	if err != nil {
		t.Failed = err.Error()
		c.opts.Logger.Warn("an action of the console failed", append(fields, zap.Error(err))...)
		return
	}
	t.Done = done[b.verb]
	logMade(c.opts.Logger.With(fields...))
}

// spares returns idempotency.ErrAlive for a request whose lost attempt may still be working: what the operator says of
// many is not meant for it. Its process can have come back since the page was shown.
func (b *bulk) spares(ctx context.Context, t bulkTarget) error {
	st, err := b.q.console.store(b.name)
	if err != nil {
		return err
	}
	r, err := recordOf(ctx, st, idempotency.Ref(t.Target))
	if err == nil && r.State == idempotency.Unknown && r.Alive && r.Revision == t.Revision {
		err = fmt.Errorf("resolve record %s in store %q: %w: attempt %d by %q may still be working; resolve it alone", r.Ref, b.name, idempotency.ErrAlive, r.Attempt, r.Owner)
	}
	return err
}

// now reads the queue of a target.
func (b *bulk) now(ctx context.Context, t bulkTarget) (concurrency.Status, error) {
	s, _, err := b.order(t).subject()
	if err != nil {
		return concurrency.Status{}, err
	}
	of, err := b.q.console.of(s)
	if err != nil {
		return concurrency.Status{}, err
	}
	return of.Status(ctx)
}

// still returns an error if a request is none of the process, or is not as its page has shown it.
func (b *bulk) still(t bulkTarget, now func() (concurrency.Status, error)) error {
	st, err := now()
	if err != nil {
		return err
	}
	is := func(r concurrency.Request) bool {
		return strconv.FormatInt(r.Token, 10) == t.Target && processName(int64(r.Lease)) == b.name
	}
	switch holds := slices.ContainsFunc(st.Holders, is); {
	case !holds && !slices.ContainsFunc(st.Waiters, is):
		return notFound{fmt.Errorf("%s has no request of this process with token %s: it has ended, or is another process's", t.Name, t.Target)}
	case holds == t.Waits:
		return changed{fmt.Errorf("the request with token %s of %s waited, and holds a permit by now, or the other way round: nothing was done", t.Target, t.Name)}
	}
	return nil
}
