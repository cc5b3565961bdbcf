package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// done says what an action has done.
var done = map[Verb]string{
	SetLimit: "The limit is changed.", RequestStop: "The holder was asked to release its permit; it keeps it until it does.",
	Evict: "The request has ended.", Pause: "The job is paused.", Resume: "The job may start again, from its next tick on.",
	Unlock: "The job is unlocked.", Resolve: "The outcome is recorded.", Delete: "The record is deleted.",
}

// order is an action that is requested.
type order struct {
	Action
	value, reason, confirm string
}

// orderOf reads the action of a form or of a link to one.
func orderOf(r *http.Request) (order, error) {
	get := r.FormValue
	o := order{Action{Verb(get("do")), get("name"), get("target")}, get("value"), strings.TrimSpace(get("reason")), get("confirm")}
	if done[o.Verb] == "" {
		return o, badRequest{fmt.Errorf("%q is no action", o.Verb)}
	}
	if !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, unicode.IsControl) {
		// A browser would send another name than the one that the form has.
		return o, badRequest{fmt.Errorf("the name %q is no text that a form can have; use the command", o.Name)}
	}
	if _, _, err := o.subject(); err != nil {
		return o, err
	}
	return o, nil
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
	case Pause, Resume, Unlock:
		a.Name = "job/" + a.Name
	case Resolve, Delete:
		a.Name = "requests/" + a.Name
	}
	return a
}

// back is the page that shows what the action is about.
func (o order) back() string {
	page := map[Verb]string{Pause: "job", Resume: "job", Unlock: "job", Resolve: "store", Delete: "store"}[o.Verb]
	if page == "" {
		page = "queue"
	}
	return page + "?" + url.Values{"name": {o.Name}}.Encode()
}

// actBound bounds an action.
const actBound = 10 * time.Second

// act executes an action and sends the browser to the page that shows it.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		c.refuse(w, r, http.StatusBadRequest, err)
		return
	}
	o, err := orderOf(r)
	if err != nil {
		c.refuse(w, r, status(err), err)
		return
	}
	if err := c.opts.may(r, o.action()); err != nil {
		c.refuse(w, r, http.StatusForbidden, err)
		return
	}
	if o.confirm != o.Name {
		c.refuse(w, r, http.StatusBadRequest, fmt.Errorf("the name was not typed as it is: %q", o.Name))
		return
	}
	who := c.opts.Actor(r)
	// A viewer that leaves does not end an action halfway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actBound)
	defer cancel()
	err = c.do(ctx, o, who)
	log := c.opts.Logger.With(zap.String("action", string(o.Verb)), zap.String("name", o.Name), zap.String("target", o.Target), zap.String("actor", who), zap.String("value", o.value), zap.String("reason", o.reason))
	if err != nil {
		log.Warn("an action of the console failed", zap.Error(err))
		c.refuse(w, r, actStatus(err), err)
		return
	}
	log.Info("an action of the console")
	c.settle(ctx)
	w.Header().Set("Location", o.back()+"&done="+url.QueryEscape(string(o.Verb)))
	w.WriteHeader(http.StatusSeeOther)
}

// actStatus returns the HTTP status of an action that failed.
func actStatus(err error) int {
	if errors.Is(err, concurrency.ErrNotHeld) || errors.Is(err, concurrency.ErrNoLimit) || errors.Is(err, idempotency.ErrConflict) || errors.Is(err, idempotency.ErrNotFound) || errors.Is(err, idempotency.ErrInProgress) {
		return http.StatusConflict
	}
	return status(err)
}

// do executes an action.
func (c *console) do(ctx context.Context, o order, who string) error {
	s, name, err := o.subject()
	if err != nil {
		return err
	}
	reason := "console, " + who
	if o.reason != "" {
		reason += ": " + o.reason
	}
	switch o.Verb {
	case SetLimit:
		return c.setLimit(ctx, s, o.value)
	case RequestStop, Evict:
		token, err := strconv.ParseInt(o.Target, 10, 64)
		if err != nil {
			return badRequest{fmt.Errorf("%q is no token", o.Target)}
		}
		of, err := c.of(s)
		if err != nil {
			return err
		}
		if o.Verb == Evict {
			return of.EvictToken(ctx, token, reason)
		}
		return of.RequestStop(ctx, token, reason)
	case Pause, Resume, Unlock:
		l, err := c.locker()
		switch {
		case err != nil:
			return err
		case o.Verb == Pause:
			return l.Pause(ctx, name, reason)
		case o.Verb == Resume:
			return l.Resume(ctx, name)
		}
		return l.Unlock(ctx, name, reason)
	default:
		st, err := c.store(name)
		switch {
		case err != nil:
			return err
		case o.Verb == Delete:
			return st.Delete(ctx, idempotency.Ref(o.Target))
		case o.value == "failed":
			return st.Resolve(ctx, idempotency.Ref(o.Target), idempotency.HasFailed(reason))
		case o.value == "not-done":
			return st.Resolve(ctx, idempotency.Ref(o.Target), idempotency.NotDone())
		}
		return badRequest{fmt.Errorf("%q is no outcome", o.value)}
	}
}

func (c *console) setLimit(ctx context.Context, s subject, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return badRequest{fmt.Errorf("%q is no limit", value)}
	}
	if s.kind != concurrency.KindSemaphore && s.kind != concurrency.KindLimiter {
		return badRequest{fmt.Errorf("%s: its limit cannot be changed", s)}
	}
	if s.kind == concurrency.KindLimiter && s.key == "" {
		l, err := c.limiter(s)
		if err != nil {
			return err
		}
		return l.SetDefault(ctx, n)
	}
	of, err := c.semaphore(s)
	if err != nil {
		return err
	}
	return of.SetLimit(ctx, n)
}

// confirmation is the page that asks before an action.
type confirmation struct {
	Verb                                Verb
	Name, Target, Question, Button      string
	Back, Value                         string
	Number, Outcome, Reason, MustReason bool
}

func confirmTitle(q request) string { return string(Verb(q.FormValue("do"))) + " " + q.name() }

func confirmSubject(q request) string {
	if o, err := orderOf(q.Request); err == nil {
		return o.action().Name
	}
	return q.name()
}

func readConfirm(q request) (any, quality, error) {
	o, err := orderOf(q.Request)
	if err != nil {
		return nil, quality{}, err
	}
	if err := q.console.opts.may(q.Request, o.action()); err != nil {
		return nil, quality{}, forbidden{err}
	}
	p := confirmation{Verb: o.Verb, Name: o.Name, Target: o.Target, Back: o.back()}
	switch o.Verb {
	case SetLimit:
		p.Question, p.Button, p.Number = "Change the limit for all processes, at once. 0 pauses: nothing is admitted. Of a limiter without a key it is the default of all keys.", "Change the limit", true
	case RequestStop:
		p.Question, p.Button, p.Reason = fmt.Sprintf("Ask the holder with token %s to finish its work and release its permit. A holder that does not watch for that keeps it.", text(o.Target)), "Ask to stop", true
	case Evict:
		p.Question, p.Button, p.Reason = fmt.Sprintf("End the request with token %s at once. If it holds a permit, the next request may be admitted while its work still runs.", text(o.Target)), "End it", true
	case Pause:
		p.Question, p.Button, p.Reason, p.MustReason = "Keep the job from starting, in all processes, until it is resumed. An active run is not affected.", "Pause", true, true
	case Resume:
		p.Question, p.Button = "Let the job start again, from its next tick on.", "Resume"
	case Unlock:
		p.Question, p.Button, p.Reason, p.MustReason = "End the active run by force, or a cooldown. Another run may start while its work still runs.", "Unlock", true, true
	case Resolve:
		p.Question, p.Button, p.Outcome, p.Reason = "Record what the lost attempt has done. Find that out first: duplicates get this outcome. A result can be recorded with 'etcdkit requests resolve'.", "Record the outcome", true, true
	case Delete:
		p.Question, p.Button = "Delete the record: the next duplicate runs the request again.", "Delete"
	}
	return p, quality{asOf: time.Now()}, nil
}

// forbidden is a refusal of Authorize.
type forbidden struct{ error }
