package console

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// hit is something that a search has found.
type hit struct {
	Name, Href, What string
	Since            time.Time

	subject string // the name that Authorize is asked about, or ""
	exact   bool
}

// hits are those of one kind.
type hits struct {
	Label string
	Rows  []hit
	More  bool // there are more of them
}

// searchPage is what a search has found.
type searchPage struct {
	Query  string
	Groups []hits
	More   bool // there is more than was looked through

	Unnoted bool // there are more notes of idempotent requests than are kept
}

// Bounds of a search.
const (
	mostQuery = 255 // bytes, as of a name
	mostFound = 500 // of one kind, before Authorize has refused some of them
	mostHits  = 50  // of one kind, on the page
)

func readSearch(q request) (any, quality, error) {
	text := strings.TrimSpace(q.URL.Query().Get("q"))
	if len(text) > mostQuery {
		return nil, quality{}, badRequest{fmt.Errorf("the text has %d bytes, more than %d: nothing has such a name", len(text), mostQuery)}
	}
	if text == "" {
		_, st, err := look(q, "nothing", func(*fleet.State) bool { return true })
		return searchPage{}, st, err
	}
	type result struct {
		groups  []hits
		unnoted bool
	}
	of, st, err := look(q, ofSearch+text, func(s *fleet.State) result {
		return result{search(s, q.console.inner.Space(), text, q.console.history.gone(s, time.Now())), s.Unnoted}
	})
	if err != nil {
		return nil, st, err
	}
	p := searchPage{Query: text, Unnoted: of.unnoted}
	mayRead := q.reader()
	for _, group := range of.groups {
		shown := hits{Label: group.Label, More: group.More}
		p.More = p.More || group.More
		for _, h := range group.Rows {
			switch {
			case !mayRead(h.subject):
			case len(shown.Rows) == mostHits:
				shown.More = true
			default:
				shown.Rows = append(shown.Rows, h)
			}
		}
		if len(shown.Rows) > 0 {
			p.Groups = append(p.Groups, shown)
		}
	}
	return p, st, nil
}

// finder searches a namespace for a text.
type finder struct {
	text, lower string
	groups      []hits
}

// search returns what has a text in its name, owner, note, ID, token, lease, reference or scope. Small and capital letters
// are the same, but for scopes: of them etcd has hashes. gone are as of history.
func search(s *fleet.State, space keyspace.Space, text string, gone map[string]time.Time) []hits {
	f := &finder{text: text, lower: strings.ToLower(text)}
	f.names(s, gone)
	f.runs(s)
	f.processes(s)
	f.died(s)
	f.requests(s)
	f.records(s, space)
	return f.groups
}

// has reports whether one of some texts contains what is searched for.
func (f *finder) has(texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), f.lower) })
}

// add adds the hits of one kind, those first that are what was searched for.
func (f *finder) add(label string, rows []hit) {
	slices.SortFunc(rows, func(a, b hit) int {
		if a.exact != b.exact {
			return map[bool]int{true: -1, false: 1}[a.exact]
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Since.Compare(b.Since), strings.Compare(a.What, b.What), strings.Compare(a.Href, b.Href))
	})
	if len(rows) > 0 {
		f.groups = append(f.groups, hits{label, rows[:min(len(rows), mostFound)], len(rows) > mostFound})
	}
}

func (f *finder) names(s *fleet.State, gone map[string]time.Time) {
	var queues, jobs, stores []hit
	add := func(to *[]hit, page, name, subject, what string) {
		if f.has(name) {
			*to = append(*to, hit{Name: name, Href: pageOf(page, name), What: what, subject: subject, exact: name == f.text})
		}
	}
	for _, r := range rowsOf(s, time.Now(), gone) {
		add(&queues, "queue", r.Name, r.Name, r.Marks[0].Text)
	}
	for name, lim := range s.Limiters {
		for key, of := range lim.Keys {
			if f.has(key) {
				full := subject{"limiter", name, key}.String()
				queues = append(queues, hit{Name: full, Href: pageOf("queue", full), What: fmt.Sprintf("%d used, %d waiting", of.Now.Used, of.Now.Waiting), subject: full, exact: key == f.text})
			}
		}
	}
	for name, j := range s.Jobs {
		if !j.Forgotten() {
			add(&jobs, "job", name, "job/"+name, stateOf(j))
		}
	}
	for name := range s.Stores {
		add(&stores, "store", name, "requests/"+name, "")
	}
	f.add("Queues", queues)
	f.add("Jobs", jobs)
	f.add("Stores of requests", stores)
}

// runs searches the recorded runs of jobs, each attempt of them: one hit of each job.
func (f *finder) runs(s *fleet.State) {
	var rows []hit
	for name, j := range s.Jobs {
		if j.Forgotten() || !f.hasRun(j) {
			continue
		}
		n, h := 0, hit{Name: name, Href: pageOf("job", name), subject: "job/" + name}
		for _, r := range runsOf(j) {
			if !f.has(r.Owner, r.By) && (r.Error == lostWithout || !f.has(r.Error)) {
				continue
			}
			if n++; n == 1 {
				h.What, h.Since = fmt.Sprintf("%s by %s", r.State, text(r.Owner)), r.Start
			}
			h.exact = h.exact || r.Owner == f.text
		}
		if n > 1 {
			h.What += fmt.Sprintf(", and %s before", count(n-1, "run", "runs"))
		}
		if n > 0 {
			rows = append(rows, h)
		}
	}
	f.add("Runs of jobs", rows)
}

// hasRun reports whether a recorded run of a job, or an attempt of one, has the text.
func (f *finder) hasRun(j *fleet.Job) bool {
	for _, run := range j.Runs {
		r := run.More
		if r == nil {
			continue
		}
		if f.has(r.Owner, r.Error, r.By) || slices.ContainsFunc(r.Earlier, func(e record.Ended) bool { return f.has(e.Owner, e.Error) }) {
			return true
		}
	}
	return false
}

func (f *finder) processes(s *fleet.State) {
	var rows []hit
	for lease, of := range s.Sessions {
		name := processName(lease)
		if f.has(of.Owner, name) || strconv.FormatInt(lease, 10) == f.text {
			rows = append(rows, hit{Name: cmp.Or(of.Owner, "–"), Href: pageOf("process", name), What: "lease " + name, Since: record.Time(of.Since), subject: "process/" + name, exact: of.Owner == f.text || name == f.lower})
		}
	}
	f.add("Processes", rows)
}

// died searches what processes had that died within the hour: etcd has nothing of their permits and runs any more.
func (f *finder) died(s *fleet.State) {
	var rows []hit
	for _, d := range s.Died(time.Now().UnixMilli(), asItIs) {
		for _, had := range d.Had {
			if token := strconv.FormatInt(had.Token, 10); f.has(d.Owner, had.ID, had.Note) || token == f.text {
				rows = append(rows, hit{Name: cmp.Or(had.Ref, had.Name), Href: hadAt(had), What: hadOf(d.Owner, had), Since: record.Time(d.At), subject: had.Name, exact: d.Owner == f.text})
			}
		}
	}
	f.add("What processes had when they died", rows)
}

// asItIs returns an owner as it is stored.
func asItIs(owner string) string { return owner }

// hadAt returns the page of what a process had.
func hadAt(h fleet.Held) string {
	if h.Ref != "" {
		return refOf(strings.TrimPrefix(h.Name, "requests/"), h.Ref)
	}
	return hrefOf(h.Name)
}

// hadOf describes what a process had.
func hadOf(owner string, h fleet.Held) string {
	what := owner + " held a permit"
	switch {
	case h.Ref != "":
		what = owner + " executed it, in the store " + strings.TrimPrefix(h.Name, "requests/")
	case strings.HasPrefix(h.Name, "job/"):
		what = owner + " ran it"
	}
	if h.Token != 0 {
		what += fmt.Sprintf(", token %d", h.Token)
	}
	for _, part := range []string{h.ID, h.Note} {
		if part != "" {
			what += ", " + part
		}
	}
	return what
}

// requests searches the requests of all queues, in the order of their names. Of those that have the text somewhere it keeps
// so many; those that are what was searched for it keeps all.
func (f *finder) requests(s *fleet.State) {
	queues := map[string]*fleet.Queue{}
	eachQueue(s, func(name subject, of *fleet.Queue) { queues[name.String()] = of })
	var exact, rows []hit
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		queues[name].Each(func(r fleet.Request, holds bool) bool {
			is := strconv.FormatInt(r.Token, 10) == f.text || r.ID == f.text
			switch {
			case is:
				exact = append(exact, requestHit(name, r, holds))
			case len(rows) <= mostFound && f.has(r.Owner, r.ID, r.Note):
				rows = append(rows, requestHit(name, r, holds))
			}
			return len(exact) <= mostFound
		})
	}
	for i := range exact {
		exact[i].exact = true
	}
	f.add("Requests in queues", append(exact, rows...))
}

func requestHit(queue string, r fleet.Request, holds bool) hit {
	h := hit{Name: queue, Href: pageOf("queue", queue), What: r.Owner + " waits", Since: record.Time(r.Requested), subject: queue}
	if holds {
		h.What, h.Since = r.Owner+" holds", record.Time(cmp.Or(r.Since, r.Requested))
	}
	for _, part := range []string{r.ID, r.Note} {
		if part != "" {
			h.What += ", " + part
		}
	}
	return h
}

// leastReference is the shortest beginning of a reference that is searched for.
const leastReference = 6

func (f *finder) records(s *fleet.State, space keyspace.Space) {
	var rows []hit
	for name, st := range s.Stores {
		of := "requests/" + name
		scope := strings.TrimPrefix(space.Store(name).Scope(f.text), space.Store(name).Records())
		if n := len(st.Find(scope, mostFound)); n > 0 {
			rows = append(rows, hit{Name: name, Href: pageOf("store", name) + "&" + url.Values{"scope": {f.text}}.Encode(), What: fmt.Sprintf("%s of the scope %s", atMost(n), f.text), subject: of, exact: true})
		}
		rows = append(append(rows, f.noted(name, st.Notes())...), f.noted(name, st.Owners())...)
		if len(f.text) < leastReference {
			continue
		}
		refs := st.Find(f.text, math.MaxInt)
		slices.Sort(refs)
		for _, ref := range refs[:min(len(refs), mostFound+1)] {
			rows = append(rows, hit{Name: ref, Href: refOf(name, ref), What: "in the store " + name, subject: of, exact: ref == f.text})
		}
	}
	f.add("Idempotent requests", rows)
}

// noted returns the requests of a store that have the text in their notes, or in the owners of attempts that have not ended, by these
// texts, up to one more than are shown.
func (f *finder) noted(store string, notes map[string]string) (rows []hit) {
	var exact, refs []string
	for ref, note := range notes {
		switch {
		case note == f.text:
			exact = append(exact, ref)
		case f.has(note):
			refs = append(refs, ref)
		}
	}
	slices.Sort(exact)
	slices.Sort(refs)
	refs = append(exact, refs...)
	for _, ref := range refs[:min(len(refs), mostFound+1)] {
		rows = append(rows, hit{Name: ref, Href: refOf(store, ref), What: "in the store " + store + ", " + notes[ref], subject: "requests/" + store, exact: notes[ref] == f.text})
	}
	return rows
}

// atMost returns how many requests were found.
func atMost(n int) string {
	if n >= mostFound {
		return fmt.Sprintf("%d or more requests", n)
	}
	return count(n, "request", "requests")
}

// refOf returns the address of the page of one record.
func refOf(store, ref string) string {
	return pageOf("store", store) + "&" + url.Values{"ref": {ref}}.Encode()
}
