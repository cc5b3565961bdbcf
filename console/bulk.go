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
	mostBulkForm = formSize / 4 * 3 // bytes of the targets in a form, as a browser sends it
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
	Spared               int    // that are left out since their processes live, beside those that are shown
	ready                int    // records that are shown and on which the action can be made
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
	found = slices.DeleteFunc(found, func(t bulkTarget) bool { return b.may(t) != nil || !mayRead(b.order(t).action().Name) })
	if b.of == "store" {
		err = b.read(&p, found)
	} else {
		p.Targets, p.Rest = found[:min(len(found), mostBulk)], max(0, len(found)-mostBulk)
	}
	if err != nil {
		return nil, st, err
	}
	p.fit()
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
		p.Question, p.Button = "Evict the requests of this process below, at once. Others may be admitted while its work still runs. Its session lives, and new requests of it are admitted.", "Evict them"
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
	return evictable(of), st, err
}

// evictable returns the requests of a process that can be evicted: those first that wait, since of many a form has the
// first ones, and the end of a holder would admit a waiter that is left for another form.
func evictable(of processView) (found []bulkTarget) {
	for _, r := range of.waits {
		found = append(found, bulkTarget{Name: r.Queue, Target: r.Token, What: "waits " + r.Note, Since: r.Since, Waits: true})
	}
	for _, r := range of.holds {
		found = append(found, bulkTarget{Name: r.Queue, Target: r.Token, What: "holds " + r.Note, Since: r.Since})
	}
	return slices.DeleteFunc(found, func(t bulkTarget) bool { return strings.HasPrefix(t.Name, "rate/") })
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

// read reads the records of targets, and adds to a page those on which the action can be made, until it has as many as a form
// may have, and beside them those whose processes live. What it has not read is left for another form.
func (b *bulk) read(p *bulkPage, targets []bulkTarget) error {
	ctx, cancel := context.WithTimeoutCause(b.q.Context(), firstWait, errSlow)
	defer cancel()
	st, err := b.q.console.store(b.name)
	if err != nil {
		return err
	}
	refs := make([]idempotency.Ref, 0, len(targets))
	for _, t := range targets {
		refs = append(refs, idempotency.Ref(t.Target))
	}
	for r, err := range st.List(ctx, idempotency.Filter{Refs: refs}) {
		switch {
		case err != nil:
			return err
		case p.ready == mostBulk:
			p.Rest = len(refs) - slices.Index(refs, r.Ref)
			return nil
		}
		p.take(r)
	}
	return nil
}

// take adds a record to a page, unless the action is not made on one in its state.
func (p *bulkPage) take(r idempotency.Record) {
	if p.Verb == Resolve && r.State != idempotency.Unknown || p.Verb == Delete && r.State == idempotency.InProgress {
		return
	}
	t := bulkTarget{Name: p.Name, Target: string(r.Ref), What: fmt.Sprintf("%v, %s, scope %s, attempt %d by %s", r.State, r.Op, r.Scope, r.Attempt, r.Owner), Since: r.Started, Revision: r.Revision}
	switch {
	case !r.Alive:
		p.ready++
	case len(p.Targets)-p.ready == mostBulk:
		p.Spared++
		return
	default:
		t.Alive, t.What = true, t.What+", whose process lives: it is left out, act on it alone"
	}
	p.Targets = append(p.Targets, t)
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

// sentSize returns how many bytes of a form lines are when a browser sends it.
func sentSize(lines string) int { return len(url.QueryEscape(lines)) }

// fit leaves the last targets for another form, until a browser can send the rest.
func (p *bulkPage) fit() {
	size := 0
	for i, t := range p.Targets {
		if size += sentSize(linesOf([]bulkTarget{t}) + " "); size > mostBulkForm {
			p.Rest += len(p.Targets) - i
			p.Targets = p.Targets[:i]
			return
		}
	}
}

// targetsOf is the inverse of linesOf. Each target is checked as that of an action on it alone.
func (b *bulk) targetsOf(lines string) error {
	all := strings.Fields(lines)
	if size := sentSize(lines); len(all) == 0 || len(all) > mostBulk || size > mostBulkForm {
		return badRequest{fmt.Errorf("the form has %d targets of %d bytes: it may have 1 to %d, of at most %d bytes", len(all), size, mostBulk, mostBulkForm)}
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
