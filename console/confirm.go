package console

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// confirmation is the page that asks before an action.
type confirmation struct {
	Verb                                 Verb
	Name, Target, Question, Button, Back string
	Facts                                []fact
	Seen, Form                           string // what identifies the state that is shown, and the form
	Number, Outcome                      bool
	Alert                                string // what was wrong with the form
	Value, ReasonText, ResultText, Typed string // as they were filled in

	Record         idempotency.Record // of a request
	Corrects       bool               // an operator has recorded its outcome
	Status, Header string             // as they were filled in
	Force          bool
}

// need is what the form of an action has, beside the name and the reason.
type need struct {
	question, button string
}

// needs are the forms, by action. Each requires a reason: other operators read it, in the list of changes for one. With
// exceptions for harmless actions, those that were made in an incident would be the ones without it.
var needs = map[Verb]need{
	SetLimit:    {"Change the limit for all processes, at once. 0 pauses: nothing is admitted.", "Change the limit"},
	RequestStop: {"Ask the holder with token %s to finish its work and release its permit. A holder that does not watch for that keeps it.", "Ask to stop"},
	Evict:       {"Evict the request with token %s at once. The next request may be admitted while its work still runs.", "Evict"},
	Pause:       {"Keep the job from starting, in all processes, until it is resumed. An active run is not affected.", "Pause"},
	Resume:      {"Let the job start again, from its next tick on.", "Resume"},
	Unlock:      {"End the run with token %s by force. Another run may start while its work still runs. If that run has ended by then, nothing is done.", "Unlock"},
	Trigger:     {"Ask the processes of the job to run it now, once, as a tick of its own.", "Run now"},
	Resolve:     {"Record what the lost attempt has done. Find that out first: duplicates get this outcome.", "Record the outcome"},
	EndSession:  {"End the session of this process at once: its permits, its waiting requests, its runs and its attempts. Others may be admitted while its work still runs. If the process lives, it opens another session.", "End the session"},
	Delete:      {"Delete the record: the next duplicate runs the request again.", "Delete"},
}

// confirmation returns the form of an action on a target as it is now.
func (o order) confirmation(at target) confirmation {
	n := needs[o.Verb]
	p := confirmation{
		Verb: o.Verb, Name: o.Name, Target: o.Target, Question: n.question, Button: n.button, Back: o.back(),
		Facts: at.facts, Seen: at.seen, Form: rand.Text(), Value: o.value, ReasonText: o.reason, ResultText: o.typed, Typed: o.confirm,
		Record: at.record, Corrects: at.record.Resolved != "", Status: o.found.status, Header: o.found.header, Force: o.found.force,
	}
	p.Number, p.Outcome = o.Verb == SetLimit && !o.clears(), o.Verb == Resolve
	s, _, _ := o.subject()
	switch {
	case o.Verb == EndSession:
		p.Back = pageOf("process", o.Name)
	case o.Verb == Unlock && o.Target == "":
		p.Question = "End the cooldown, so that the job may start again at once. If that has ended by then, nothing is done."
	case o.Verb == Evict && at.waits:
		p.Question = fmt.Sprintf("Evict the waiting request with token %s. If it holds a permit by then, nothing is done.", text(o.Target))
	case o.Verb == RequestStop && at.waits:
		p.Question = fmt.Sprintf("Ask the process of the waiting request with token %s to withdraw it. If it holds a permit by then, nothing is done.", text(o.Target))
		p.Button = "Ask to withdraw"
	case o.Verb == RequestStop, o.Verb == Evict, o.Verb == Unlock:
		p.Question = fmt.Sprintf(n.question, text(o.Target))
	case o.Verb == Resolve && p.Corrects:
		p.Question = "Correct what an operator has recorded. For up to CacheFor of the services, 10 seconds by default, and a third of their session's TTL, duplicates may get either outcome."
	case o.clears():
		p.Question, p.Button = "Remove the limit of this key, for all processes, at once: it has the default again.", "Remove the limit"
	case o.Verb == SetLimit && s.kind == concurrency.KindLimiter && o.Target == total:
		p.Question = "Change the total of all keys, for all processes, at once. 0 pauses: nothing is admitted."
	case o.Verb == SetLimit && s.kind == concurrency.KindLimiter && s.key == "":
		p.Question = "Change the default limit, of each key that has none of its own, for all processes, at once. 0 pauses: nothing is admitted."
	}
	return p
}

func confirmTitle(q request) string { return q.FormValue("do") + " " + q.FormValue("name") }

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
	at, err := q.examine(o)
	return o.confirmation(at), at.quality, err
}

// mistake returns what is wrong with a form that was filled in, or "".
func (o order) mistake() string {
	switch {
	case o.confirm != o.Name && o.confirm != text(o.Name): // what is not visible is typed as it is shown
		return "The name was not typed as it is."
	case o.Verb == Resolve && o.value == "":
		return "The outcome is missing."
	case o.reason == "":
		return "The reason is missing."
	case len(o.reason) > mostReason:
		return fmt.Sprintf("The reason has %d bytes, more than %d.", len(o.reason), mostReason)
	case strings.ContainsFunc(o.reason, unicode.IsControl) || !utf8.ValidString(o.reason):
		return "The reason has characters that are not text."
	case o.Verb == SetLimit && !o.clears() && !limitLike(o.value):
		return "The limit is not a number from 0 to 2147483647."
	case o.Verb == Resolve && o.value == "done":
		_, wrong := o.result()
		return wrong
	}
	return ""
}

func limitLike(value string) bool {
	n, err := strconv.ParseInt(value, 10, 32)
	return err == nil && n >= 0
}
