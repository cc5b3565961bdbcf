package console

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// Bounds of an action on many targets.
const (
	mostBulk     = 200 // targets of one form
	bulkAtOnce   = 8
	mostBulkForm = mostBulk * (mostName + 64) // bytes of the targets
)

// bulkTarget is one target of an action on many.
type bulkTarget struct {
	Name, Target, What string // Name as the action has it
	Since              time.Time
	Revision           int64  // of a record, as it was shown
	Waits              bool   // it is a request that has no permit
	Alive              bool   // the process of a lost attempt lives: the action is not made
	Done, Failed       string // what became of it
}

// bulkPage is the page of an action on many targets: what it would end or change, or what it has.
type bulkPage struct {
	Verb                 Verb
	Name, Question, Back string // Name is typed
	Button               string
	Targets              []bulkTarget
	Rest                 int    // targets that are left for another form
	Lines, Form          string // the targets that are shown, and the key of the form
	Outcome              bool
	Value, Reason, Alert string
	Made                 bool
	Done, Failed         int
}

// bulk is an action on many targets: those that its page has shown, and no others.
type bulk struct {
	q       request
	verb    Verb
	of      string // process or store
	name    string
	back    string
	targets []bulkTarget
	value   string
	reason  string
}

// bulkOf reads the action of a link or a form: do, and process or store.
func bulkOf(q request) (*bulk, error) {
	b := &bulk{q: q, verb: Verb(q.FormValue("do")), of: "process", name: q.FormValue("process"), value: q.PostFormValue("value"), reason: strings.TrimSpace(q.PostFormValue("reason"))}
	if store := q.FormValue("store"); store != "" {
		b.of, b.name = "store", store
	}
	var err error
	switch {
	case b.of == "process" && b.verb == Evict:
		b.back = pageOf("process", b.name)
		_, err = leaseOf(b.name)
	case b.of == "store" && (b.verb == Resolve || b.verb == Delete):
		b.back = pageOf("store", b.name)
		err = checkName(b.name)
	default:
		err = badRequest{fmt.Errorf("%.20q is no action on many of a %s", b.verb, b.of)}
	}
	if err == nil && (!utf8.ValidString(b.name) || strings.ContainsFunc(b.name, unicode.IsControl)) {
		err = badRequest{fmt.Errorf("the name %q is no text that a form can have; use the command", b.name)}
	}
	return b, err
}

// subject is the name that Authorize is asked about for the page.
func (b *bulk) subject() string {
	if b.of == "store" {
		return "requests/" + b.name
	}
	return "process/" + b.name
}

func readBulk(q request) (any, quality, error) {
	b, err := bulkOf(q)
	if err != nil {
		return nil, quality{}, err
	}
	found, st, err := b.look()
	if err != nil {
		return nil, st, err
	}
	p, mayRead := b.page(), q.reader()
	for _, t := range found {
		switch {
		case b.may(t) != nil, !mayRead(b.order(t).action().Name):
		case len(p.Targets) == mostBulk:
			p.Rest++
		default:
			p.Targets = append(p.Targets, t)
		}
	}
	if b.of == "store" {
		p.Targets, err = b.read(p.Targets)
	}
	if err != nil {
		return nil, st, err
	}
	p.Form, p.Lines = rand.Text(), linesOf(p.Targets)
	if len(p.Targets) == 0 {
		return nil, st, notFound{fmt.Errorf("%s of %s %s: there is nothing left on which it could be made, or nothing on which you may make it", b.verb, b.of, b.name)}
	}
	return p, st, nil
}

// page returns the page without targets.
func (b *bulk) page() bulkPage {
	p := bulkPage{Verb: b.verb, Name: b.name, Back: b.back, Outcome: b.verb == Resolve, Value: b.value, Reason: b.reason}
	switch b.verb {
	case Evict:
		p.Question, p.Button = "End the requests of this process below, at once. Others may be admitted while its work still runs. Its session lives, and new requests of it are admitted.", "End them"
	case Resolve:
		p.Question, p.Button = "Record the same outcome for each of these requests. Find out first what their lost attempts have done: duplicates get it.", "Record the outcome"
	default:
		p.Question, p.Button = "Delete these records: the next duplicate of each runs its request again.", "Delete them"
	}
	return p
}

// look returns the targets as the namespace shows them.
func (b *bulk) look() ([]bulkTarget, quality, error) {
	if b.of == "store" {
		return b.lookStore()
	}
	lease, err := leaseOf(b.name)
	if err != nil {
		return nil, quality{}, err
	}
	of, st, err := look(b.q, "process/"+b.name, func(s *fleet.State) processView { return processOf(s, lease) })
	var found []bulkTarget
	for _, r := range of.holds {
		found = append(found, bulkTarget{Name: r.Queue, Target: r.Token, What: "holds " + r.Note, Since: r.Since})
	}
	for _, r := range of.waits {
		found = append(found, bulkTarget{Name: r.Queue, Target: r.Token, What: "waits " + r.Note, Since: r.Since, Waits: true})
	}
	return slices.DeleteFunc(found, func(t bulkTarget) bool { return strings.HasPrefix(t.Name, "rate/") }), st, err
}

// lookStore returns the records of a store that its address selects, in an order that does not change.
func (b *bulk) lookStore() (found []bulkTarget, _ quality, _ error) {
	selected := selectionOf(b.q)
	if b.verb == Resolve && selected.scope == "" {
		selected = selection{refused: true}
	}
	of, st, err := look(b.q, fmt.Sprintf("bulk/%s/%#v/%s", b.verb, selected, b.name), func(s *fleet.State) *storeState {
		kept := storeOf(s, b.q.console.inner.Space(), b.name, selected)
		if store := s.Stores[b.name]; store != nil {
			stage := map[Verb]fleet.Stage{Resolve: fleet.Unknown, Delete: fleet.InProgress}[b.verb]
			in := map[string]bool{}
			for _, ref := range store.Refs(stage) {
				in[ref] = true
			}
			kept.refs = slices.DeleteFunc(kept.refs, func(ref string) bool { return in[ref] != (b.verb == Resolve) })
		}
		return kept
	})
	if err != nil {
		return nil, st, err
	}
	for _, ref := range of.sorted() {
		found = append(found, bulkTarget{Name: b.name, Target: ref})
	}
	return found, st, nil
}

// read reads the records that are shown, and leaves out those on which the action is not made.
func (b *bulk) read(targets []bulkTarget) (kept []bulkTarget, _ error) {
	ctx, cancel := context.WithTimeoutCause(b.q.Context(), firstWait, errSlow)
	defer cancel()
	var refs []string
	for _, t := range targets {
		refs = append(refs, t.Target)
	}
	if len(refs) == 0 {
		return nil, nil
	}
	records, err := b.q.console.records(ctx, b.name, 0, refs)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if b.verb == Resolve && r.State != idempotency.Unknown || b.verb == Delete && r.State == idempotency.InProgress {
			continue
		}
		t := bulkTarget{Name: b.name, Target: string(r.Ref), What: fmt.Sprintf("%v, %s, scope %s, attempt %d by %s", r.State, r.Op, r.Scope, r.Attempt, r.Owner), Since: r.Started, Revision: r.Revision}
		if r.Alive && (b.verb == Delete || r.State == idempotency.Unknown) {
			t.Alive, t.What = true, t.What+", whose process lives: it is left out, act on it alone"
		}
		kept = append(kept, t)
	}
	return kept, nil
}

// may asks Authorize about one target.
func (b *bulk) may(t bulkTarget) error {
	return b.q.console.opts.may(b.q.Request, b.order(t).action())
}

// order is the action on one target.
func (b *bulk) order(t bulkTarget) order {
	return order{Action: Action{b.verb, t.Name, t.Target}, value: b.value, reason: b.reason, confirm: t.Name}
}

// linesOf returns targets as a form carries them, but for those that are left out.
func linesOf(targets []bulkTarget) string {
	var lines []string
	for _, t := range targets {
		if t.Alive {
			continue
		}
		values := url.Values{"n": {t.Name}, "t": {t.Target}, "r": {strconv.FormatInt(t.Revision, 10)}}
		if t.Waits {
			values.Set("w", "1")
		}
		lines = append(lines, values.Encode())
	}
	return strings.Join(lines, " ")
}

// targetsOf is the inverse of linesOf. Each target is checked as that of an action on it alone.
func (b *bulk) targetsOf(lines string) error {
	all := strings.Fields(lines)
	if len(all) == 0 || len(all) > mostBulk || len(lines) > mostBulkForm {
		return badRequest{fmt.Errorf("a form has 1 to %d targets", mostBulk)}
	}
	for _, line := range all {
		values, err := url.ParseQuery(line)
		if err != nil {
			return badRequest{err}
		}
		t := bulkTarget{Name: values.Get("n"), Target: values.Get("t")}
		t.Revision, _ = strconv.ParseInt(values.Get("r"), 10, 64)
		t.Waits = values.Get("w") != ""
		o := b.order(t)
		s, _, err := o.subject()
		switch {
		case err != nil:
			return err
		case !o.targeted(s), b.of == "store" && (t.Name != b.name || t.Revision <= 0):
			return badRequest{fmt.Errorf("%q is no target of %s", t.Target, b.verb)}
		}
		b.targets = append(b.targets, t)
	}
	return nil
}

// mistake returns what is wrong with a form that was filled in, or "".
func (b *bulk) mistake(typed string) string {
	o := b.order(bulkTarget{Name: b.name})
	o.confirm = typed
	switch wrong := o.mistake(); {
	case wrong != "":
		return wrong
	case b.verb == Resolve && b.value != "not-done" && b.value != "failed":
		return "The outcome is missing."
	}
	return ""
}

// bulkTitle is the title of the page.
func bulkTitle(q request) string {
	if b, err := bulkOf(q); err == nil {
		return b.title()
	}
	return "Many"
}

func bulkSubject(q request) string {
	if b, err := bulkOf(q); err == nil {
		return b.subject()
	}
	return ""
}
