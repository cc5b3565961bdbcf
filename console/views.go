package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// request is a request for a page.
type request struct {
	*http.Request
	console *console
}

// name is the name that the page is about.
func (q request) name() string { return q.URL.Query().Get("name") }

// page is the number of the page of a table, from 0 on.
func (q request) page() int {
	n, err := strconv.Atoi(q.URL.Query().Get("page"))
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// read returns what a function reads, shared with all other viewers of what has that key.
func read[T any](q request, key string, fn func(context.Context) (T, error)) (out T, asOf time.Time, err error) {
	v, asOf, err := q.console.shared.get(q.Context(), key, func(ctx context.Context) (any, error) { return fn(ctx) })
	if err != nil {
		return out, asOf, err
	}
	return v.(T), asOf, nil
}

// offers returns which of some actions a page offers.
func (q request) offers(name string, verbs ...Verb) map[string]bool {
	may := map[string]bool{}
	for _, v := range verbs {
		may[string(v)] = q.console.opts.may(q.Request, Action{Verb: v, Name: name}) == nil
	}
	return may
}

// view is one page.
type view struct {
	template string
	live     bool
	title    func(request) string
	subject  func(request) string // the name that Authorize is asked about
	read     func(request) (any, time.Time, error)
}

func fixed(s string) func(request) string { return func(request) string { return s } }
func named(prefix string) func(request) string {
	return func(q request) string { return prefix + q.name() }
}

// views are the pages, by path.
var views = map[string]view{
	"":          {"queues.html", true, fixed("Queues"), fixed(""), readQueues},
	"queue":     {"queue.html", true, named(""), named(""), readQueue},
	"elections": {"elections.html", true, fixed("Elections"), fixed(""), readElections},
	"jobs":      {"jobs.html", true, fixed("Jobs"), fixed(""), readJobs},
	"job":       {"job.html", true, named(""), named("job/"), readJob},
	"stores":    {"stores.html", true, fixed("Requests"), fixed(""), readStores},
	"store":     {"store.html", true, named(""), named("requests/"), readStore},
	"sessions":  {"sessions.html", true, fixed("Sessions"), fixed(""), readSessions},
	"doctor":    {"doctor.html", true, fixed("Doctor"), fixed(""), readDoctor},
	"confirm":   {"confirm.html", false, confirmTitle, confirmSubject, readConfirm},
}

// pageSize is how many rows a table has.
const pageSize = 100

// pager is the place in a table of several pages.
type pager struct {
	From, To       int // rows, from 1 on
	Back, Next     bool
	BackTo, NextTo string
}

// More reports whether there is another page.
func (p pager) More() bool { return p.Back || p.Next }

// paged returns the rows of the page that is asked for, and its place.
func paged[T any](q request, all []T) ([]T, pager) {
	n := min(q.page(), max(0, len(all)-1)/pageSize)
	from := n * pageSize
	to := min(len(all), from+pageSize)
	p := pager{From: min(from+1, len(all)), To: to, Back: n > 0, Next: to < len(all)}
	link := func(n int) string {
		values := url.Values{"page": {strconv.Itoa(n)}}
		for _, key := range []string{"name", "state"} {
			if v := q.URL.Query().Get(key); v != "" {
				values.Set(key, v)
			}
		}
		return "?" + values.Encode()
	}
	p.BackTo, p.NextTo = link(n-1), link(n+1)
	return all[from:to], p
}
