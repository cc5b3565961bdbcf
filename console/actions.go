package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// order is an action that is requested.
type order struct {
	Action
	value, reason, typed, confirm string
	found                         account // of a request
	seen                          string  // identifies the state of the target that the form has shown, or ""
	form                          string  // the key of the form, or ""
}

// total is the target of an action that changes the total of a limiter.
const total = "total"

// orderOf reads the action of a form or of a link to one. What an operator types comes from a form alone: a link
// that filled it in would be one key from the action.
func orderOf(r *http.Request) (order, error) {
	get, post := r.FormValue, r.PostFormValue
	o := order{
		Action: Action{Verb(get("do")), get("name"), get("target")},
		value:  post("value"), reason: strings.TrimSpace(post("reason")), typed: post("result"), confirm: post("confirm"),
		found: account{via: post("via"), status: post("status"), header: post("header"), force: post("force") != ""},
		seen:  post("seen"), form: cut(post("form"), mostKey),
	}
	if done[o.Verb] == "" {
		return o, badRequest{fmt.Errorf("%.20q is no action", o.Verb)}
	}
	if err := checkName(o.Name); err != nil {
		return o, err
	}
	if !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, unicode.IsControl) {
		// A browser would send another name than the one that the form has.
		return o, badRequest{fmt.Errorf("the name %q is no text that a form can have; use the command", o.Name)}
	}
	s, _, err := o.subject()
	if o.Verb == EndSession {
		_, err = leaseOf(o.Name)
	}
	if err == nil && !o.targeted(s) {
		err = badRequest{fmt.Errorf("%q is no target of %s", o.Target, o.Verb)}
	}
	return o, err
}

// targeted reports whether the target is one that the action has, in its one form: Authorize is asked about it.
func (o order) targeted(s subject) bool {
	switch o.Verb {
	case SetLimit:
		return o.Target == "" || o.Target == total && s.kind == concurrency.KindLimiter && s.key == "" || o.clears() && s.key != ""
	case RequestStop, Evict, Unlock:
		token, err := strconv.ParseInt(o.Target, 10, 64)
		return err == nil && token > 0 && strconv.FormatInt(token, 10) == o.Target || o.Verb == Unlock && o.Target == ""
	case Pause, Resume, Trigger, EndSession:
		return o.Target == ""
	}
	return true
}

// subject returns the queue, or the name of the job or store, that an action is about. Links have the
// name of a job or store alone.
func (o order) subject() (subject, string, error) {
	switch o.Verb {
	case SetLimit, RequestStop, Evict:
		s, err := parse(o.Name)
		return s, "", err
	default:
		if o.Name == "" {
			return subject{}, "", badRequest{errors.New("the name is missing")}
		}
		return subject{}, o.Name, nil
	}
}

// action is what Options.Authorize decides about.
func (o order) action() Action {
	a := o.Action
	switch o.Verb {
	case Pause, Resume, Unlock, Trigger:
		a.Name = "job/" + a.Name
	case Resolve, Delete:
		a.Name = "requests/" + a.Name
	case EndSession:
		a.Name = "process/" + a.Name
	}
	return a
}

// back is the page that shows what the action is about.
func (o order) back() string {
	if o.Verb == EndSession { // its page ends with it
		return pageOf("changes", o.action().Name)
	}
	page := map[Verb]string{Pause: "job", Resume: "job", Unlock: "job", Trigger: "job", Resolve: "store", Delete: "store"}[o.Verb]
	if page == "" {
		page = "queue"
	}
	return page + "?" + url.Values{"name": {o.Name}}.Encode()
}

// Bounds of an action.
const (
	actBound   = 10 * time.Second
	startBound = 5 * time.Second // for the start of a job
	mostReason = 800             // bytes; etcdkit stores 1024
	mostActor  = 128             // bytes
	mostKey    = 64              // bytes of the key of a form
)

// act executes an action and sends the browser to the page that shows it.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	o, err := orderOf(r)
	if err != nil {
		c.logRefusal(r, err)
		c.refuse(w, r, status(err), err)
		return
	}
	if err := c.opts.may(r, o.action()); err != nil {
		c.logRefusal(r, err)
		c.refuse(w, r, http.StatusForbidden, err)
		return
	}
	// A viewer that leaves does not end an action halfway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actBound)
	defer cancel()
	q := request{Request: r.WithContext(ctx), console: c}
	if wrong := o.mistake(); wrong != "" {
		c.ask(w, q, o, wrong)
		return
	}
	key, first := c.begin(o.form)
	if !first {
		err := changed{errors.New("this form was sent before, and its action is made once: look at what it has done; to make the action again, open its page again")}
		c.logRefusal(r, err)
		c.refuseTo(w, r, status(err), err, o.back())
		return
	}
	var at target
	if o.seen != "" || o.Verb == Resolve || o.Verb == Delete { // a form of a program does not say what the action replaces
		at, err = q.still(o)
	}
	if err != nil {
		c.unsent(key)
	} else {
		err = c.made(ctx, o, at, cut(c.opts.Actor(r), mostActor))
	}
	log := c.opts.Logger.With(c.about(r)...)
	if err != nil {
		log.Warn("an action of the console failed", zap.Error(err))
		c.refuseTo(w, r, actStatus(err), err, o.back())
		return
	}
	logMade(log)
	c.settle(ctx)
	c.did(key, o.Verb)
	w.Header().Set("Location", o.back()+"&"+url.Values{"done": {key}}.Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// made executes an action, and records it.
func (c *console) made(ctx context.Context, o order, at target, actor string) error {
	ended := c.trail.Begin(ctx, changeOf(o, at), actor)
	replaced := ""
	err := c.bounded(limit.Noting(ctx, func(was record.Limit) { replaced = strconv.FormatInt(was.Limit, 10) }), o, at, actor)
	ended(replaced, err)
	return err
}

// logMade logs an action that was made.
func logMade(log *zap.Logger) { log.Info("an action of the console") }

// bounded executes an action, with an error that says what is not known after its time.
func (c *console) bounded(ctx context.Context, o order, at target, actor string) error {
	err := c.do(ctx, o, at, actor)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; etcd has not confirmed the action within %v, and whether it is done is not known: look before you repeat it", err, actBound)
	}
	return err
}

// ask shows a form again that was filled in wrongly.
func (c *console) ask(w http.ResponseWriter, q request, o order, wrong string) {
	if err := c.opts.may(q.Request, Action{Verb: Read, Name: o.action().Name}); err != nil {
		c.logRefusal(q.Request, err)
		c.refuse(w, q.Request, http.StatusForbidden, err)
		return
	}
	at, err := q.still(o)
	if err != nil {
		c.logRefusal(q.Request, err)
		c.refuseTo(w, q.Request, status(err), err, o.back())
		return
	}
	p := o.confirmation(at)
	p.Alert = wrong + " Nothing was changed."
	c.render(w, q.Request, "confirm", http.StatusBadRequest, frame{Title: confirmTitle(q), Namespace: c.namespace(), AsOf: at.asOf, Data: p})
}

// about describes the action that a request asks for, for the log.
func (c *console) about(r *http.Request) []zap.Field {
	field := func(name, text string) zap.Field { return zap.String(name, cut(text, mostReason)) }
	return []zap.Field{
		field("action", r.FormValue("do")), field("name", r.FormValue("name")), field("target", r.FormValue("target")),
		zap.String("actor", cut(c.opts.Actor(r), mostActor)), field("value", r.PostFormValue("value")), field("reason", r.PostFormValue("reason")),
	}
}

// cut returns at most so many bytes of a text, as valid UTF-8.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// changed is an error of an action whose page no longer shows what is.
type changed struct{ error }

// actStatus returns the HTTP status of an action that failed.
func actStatus(err error) int {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(schedlock.ErrUnknownJob, concurrency.ErrNoLimit, idempotency.ErrNotFound):
		return http.StatusNotFound
	case is(concurrency.ErrNotHeld, schedlock.ErrNotRunning, idempotency.ErrConflict, idempotency.ErrAlive, idempotency.ErrInProgress, idempotency.ErrUnreadable):
		return http.StatusConflict
	case is(idempotency.ErrInvalid, idempotency.ErrTooLarge):
		return http.StatusBadRequest
	}
	return status(err)
}

// do executes an action on a target as it was shown, with the operator as its author. A record that has changed since it was examined stays as it is.
func (c *console) do(ctx context.Context, o order, at target, actor string) error {
	s, name, err := o.subject()
	if err != nil {
		return err
	}
	if actor != "" {
		ctx = engine.As(ctx, actor)
	}
	switch o.Verb {
	case SetLimit:
		return c.setLimit(ctx, s, o)
	case RequestStop, Evict:
		return c.endRequest(ctx, s, o)
	case Pause, Resume, Unlock, Trigger:
		return c.changeJob(ctx, name, o)
	case EndSession:
		return c.endSession(ctx, name)
	default:
		return changeRecord(ctx, c, name, o, at)
	}
}

// endRequest asks for the end of one request of a queue, or evicts it.
func (c *console) endRequest(ctx context.Context, s subject, o order) error {
	token, err := strconv.ParseInt(o.Target, 10, 64)
	if err != nil {
		return badRequest{fmt.Errorf("%q is no token", o.Target)}
	}
	of, err := c.of(s)
	if err != nil {
		return err
	}
	if o.Verb == Evict {
		return of.EvictToken(ctx, token, o.reason)
	}
	return of.RequestStop(ctx, token, o.reason)
}

// changeJob executes an action on a job.
func (c *console) changeJob(ctx context.Context, name string, o order) error {
	l, err := c.locker()
	switch {
	case err != nil:
		return err
	case o.Verb == Trigger:
		return trigger(ctx, l, name, o.reason)
	case o.Verb == Pause:
		return l.Pause(ctx, name, o.reason)
	case o.Verb == Resume:
		return l.Resume(ctx, name)
	}
	return unlock(ctx, l, name, o.Target, o.reason)
}

// endSession revokes the lease of a live session of the namespace: another lease of etcd is none of the console's.
func (c *console) endSession(ctx context.Context, name string) error {
	lease, err := leaseOf(name)
	if err != nil {
		return err
	}
	if lease == int64(c.sess.Lease()) {
		return badRequest{errors.New("this is the console's own session")}
	}
	alive, err := c.inner.Read(ctx, c.inner.Space().Session(lease).Alive())
	switch {
	case err != nil:
		return err
	case len(alive.Kvs) == 0 || alive.Kvs[0].Lease != lease:
		return changed{fmt.Errorf("no live session has the lease %s: it has ended by now", name)}
	}
	_, err = c.inner.Etcd().Client.Revoke(ctx, clientv3.LeaseID(lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil // it has ended meanwhile
	}
	return err
}

// setLimit changes a limit, or removes that of a key.
func (c *console) setLimit(ctx context.Context, s subject, o order) error {
	if o.clears() {
		l, err := c.limiter(s)
		if err != nil {
			return err
		}
		return l.ClearLimit(ctx, s.key)
	}
	n, err := strconv.Atoi(o.value)
	if err != nil {
		return badRequest{fmt.Errorf("%q is no limit", o.value)}
	}
	if s.kind == concurrency.KindLimiter && s.key == "" && o.Target != total {
		l, err := c.limiter(s)
		if err != nil {
			return err
		}
		return l.SetDefault(ctx, n)
	}
	of, err := c.limited(s)
	if err != nil {
		return err
	}
	return of.SetLimit(ctx, n)
}

// limited returns a queue whose limit can be changed.
func (c *console) limited(s subject) (*concurrency.Semaphore, error) {
	if s.kind != concurrency.KindSemaphore && s.kind != concurrency.KindLimiter {
		return nil, badRequest{fmt.Errorf("%s: its limit cannot be changed", s)}
	}
	return c.semaphore(s)
}

// forbidden is a refusal of Authorize.
type forbidden struct{ error }
