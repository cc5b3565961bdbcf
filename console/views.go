package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// request is a request for a page.
type request struct {
	*http.Request
	console *console
}

// name is the name that the page is about.
func (q request) name() string { return q.URL.Query().Get("name") }

// query is what is searched for.
func (q request) query() string {
	if q.URL.Path == "/search" {
		return cut(q.URL.Query().Get("q"), mostQuery)
	}
	return ""
}

// mostName is the length of the longest name, in bytes: limiter/NAME/KEY.
const mostName = len(concurrency.KindLimiter) + 2*(1+keyspace.MaxName)

// checkName refuses a name that nothing has. What is read by a name is remembered by it, so its length is bounded.
func checkName(name string) error {
	if len(name) > mostName {
		return badRequest{fmt.Errorf("the name %.20q… has %d bytes, more than %d: nothing has such a name", name, len(name), mostName)}
	}
	return nil
}

// page is the number of the page of a table, from 0 on, by the parameter that has it.
func (q request) page(param string) int {
	n, err := strconv.Atoi(q.URL.Query().Get(param))
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// read returns what a function reads, shared with all other viewers of what has that key.
func read[T any](q request, key string, fn func(context.Context) (T, error)) (out T, st quality, err error) {
	return readFor(q, key, readEvery, fn)
}

// readFor returns what a function reads, at most once in every.
func readFor[T any](q request, key string, every time.Duration, fn func(context.Context) (T, error)) (out T, st quality, err error) {
	if q.console.inner.Context().Err() != nil {
		return out, quality{}, errClosed // and no older reading: it would look like an outage of etcd
	}
	f, err := q.console.shared.get(q.Context(), key, every, func(ctx context.Context) (any, error) { return fn(ctx) })
	if outage := q.console.follower.outage(); errors.Is(err, errSlow) && outage != "" {
		err = errors.New(outage)
	}
	if err != nil {
		return out, quality{}, err
	}
	st = quality{asOf: f.asOf}
	if f.late != nil {
		st.unconfirmed = unanswered(f.asOf, f.late)
	}
	return f.value.(T), st, nil
}

// offers returns which of some actions a page offers.
func (q request) offers(name string, verbs ...Verb) map[string]bool {
	may := map[string]bool{}
	for _, v := range verbs {
		may[string(v)] = q.console.opts.may(q.Request, Action{Verb: v, Name: name}) == nil
	}
	return may
}

// with returns the address of this page with a parameter changed, from the first rows of its tables on.
func (q request) with(param, value string) string {
	values := q.URL.Query()
	for _, place := range []string{"done", "page", "keys", "holders"} {
		values.Del(place)
	}
	if values.Del(param); value != "" {
		values.Set(param, value)
	}
	return "?" + values.Encode()
}

// sideOf returns the names beside a page, for a viewer that may read lists. The page does without them after an error.
func (q request) sideOf(path string) *side {
	list, ok := sides[path]
	if !ok || q.console.opts.may(q.Request, Action{Verb: Read}) != nil {
		return nil
	}
	all, _, err := look(q, "side/"+path, func(s *fleet.State) []sideRow { return list.rows(q.console, s) })
	if err != nil || len(all) < 2 {
		return nil
	}
	s := &side{Label: list.label, All: list.all}
	mayRead, shown := q.reader(), false
	for _, row := range all {
		row.Current = row.Name == q.name() || path == "queue" && keyIn(q.name(), row.Name)
		switch last := len(s.Names) - 1; {
		case shown && s.More:
			return s
		case s.More && !row.Current, !mayRead(list.subject + row.Name):
		case last+1 < mostSide:
			shown = shown || row.Current
			s.Names = append(s.Names, row)
		case row.Current:
			shown, s.More, s.Names[last] = true, true, row
		default:
			s.More = true
		}
	}
	if len(s.Names) < 2 {
		return nil
	}
	return s
}

// jsonOf returns the address of the data of a page, or "" for one that asks before an action.
func (q request) jsonOf(v view) string {
	if !v.live {
		return ""
	}
	values := q.URL.Query()
	values.Del("done")
	values.Set("format", "json")
	return "?" + values.Encode()
}

// reader reports of names whether the viewer may read their pages.
func (q request) reader() func(name string) bool {
	known := map[string]bool{}
	return func(name string) bool {
		may, asked := known[name]
		if !asked {
			may = q.console.opts.may(q.Request, Action{Verb: Read, Name: name}) == nil
			known[name] = may
		}
		return may
	}
}

// view is one page.
type view struct {
	template string
	live     bool
	tab      string // the link of its tab
	title    func(request) string
	subject  func(request) string // the name that Authorize is asked about
	read     func(request) (any, quality, error)
}

func fixed(s string) func(request) string { return func(request) string { return s } }
func named(prefix string) func(request) string {
	return func(q request) string { return prefix + q.name() }
}

// views are the pages, by path.
var views = map[string]view{
	"":          {"overview.html", true, "./", fixed("Overview"), fixed(""), readOverview},
	"queues":    {"queues.html", true, "queues", fixed("Queues"), fixed(""), readQueues},
	"queue":     {"queue.html", true, "queues", named(""), named(""), readQueue},
	"elections": {"elections.html", true, "elections", fixed("Elections"), fixed(""), readElections},
	"jobs":      {"jobs.html", true, "jobs", fixed("Jobs"), fixed(""), readJobs},
	"job":       {"job.html", true, "jobs", named(""), named("job/"), readJob},
	"stores":    {"stores.html", true, "stores", fixed("Requests"), fixed(""), readStores},
	"store":     {"store.html", true, "stores", named(""), named("requests/"), readStore},
	"sessions":  {"sessions.html", true, "sessions", fixed("Processes"), fixed(""), readSessions},
	"process":   {"process.html", true, "sessions", fixed("Process"), named("process/"), readProcess},
	"doctor":    {"doctor.html", true, "doctor", fixed("Doctor"), fixed(""), readDoctor},
	"changes":   {"changes.html", true, "changes", fixed("Changes"), named(""), readChanges},
	"search":    {"search.html", true, "", fixed("Search"), fixed(""), readSearch},
	"bulk":      {"bulk.html", false, "", bulkTitle, bulkSubject, readBulk},
	"confirm":   {"confirm.html", false, "", confirmTitle, confirmSubject, readConfirm},
}

// pageSize is how many rows a table has.
const pageSize = 100

// pager is the place in a table of several pages.
type pager struct {
	From, To, Of   int // rows, from 1 on
	Back, Next     bool
	BackTo, NextTo string
}

// More reports whether there is another page.
func (p pager) More() bool { return p.Back || p.Next }

// paged returns the rows of the page that is asked for, and its place. param is the parameter that has the
// number of the page.
func paged[T any](q request, all []T, param string) ([]T, pager) {
	n := min(q.page(param), max(0, len(all)-1)/pageSize)
	from := n * pageSize
	to := min(len(all), from+pageSize)
	p := placed(q, param, n, to-from, to < len(all))
	p.Of = len(all)
	return all[from:to], p
}

// placed returns the place of the nth page, from 0 on, with so many rows.
func placed(q request, param string, n, rows int, more bool) pager {
	from := n * pageSize
	p := pager{From: min(from+1, from+rows), To: from + rows, Back: n > 0, Next: more}
	link := func(n int) string {
		values := q.URL.Query()
		values.Del("done")
		values.Set(param, strconv.Itoa(n))
		return "?" + values.Encode()
	}
	p.BackTo, p.NextTo = link(n-1), link(n+1)
	return p
}
