package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/waits"
)

// promise is what has to hold in a row.
type promise struct {
	// Bound is the most calls that the downstream service may have seen at the same time. 0 is none.
	Bound int
	// Least is how many it has to have seen: below it the row shows nothing.
	Least int
	// Served, Full, Unavailable and Other count the answers with 200, 429, 503, and others.
	Served, Full, Unavailable, Other span
	// Without counts the requests that ran without a permit.
	Without span
	// From is an instance that has to have served a request.
	From string
	// Early allows answers with 429 before the wait has passed: in an outage a request asks for a
	// second whether etcd answers. A row with answers with 503 had moments without an answer of etcd.
	Early bool
}

// span is a range of numbers.
type span struct{ min, max int }

// many is more than any row has.
const many = 1 << 30

var (
	none      = span{0, 0}
	anyNumber = span{0, many}
	some      = span{1, many}
)

func (s span) holds(n int) bool { return s.min <= n && n <= s.max }

func (s span) String() string {
	switch {
	case s.max == many:
		return fmt.Sprintf("at least %d", s.min)
	case s.min == s.max:
		return fmt.Sprint(s.min)
	}
	return fmt.Sprintf("%d to %d", s.min, s.max)
}

// row is the result of one row of the table.
type row struct {
	Name        string         `json:"name"`
	Peak        int            `json:"peak"`  // by the downstream service's own count
	Bound       int            `json:"bound"` // 0: none
	Served      int            `json:"2xx"`
	Full        int            `json:"429"`
	Unavailable int            `json:"503"`
	Other       int            `json:"other"`
	Without     int            `json:"without_permit"`
	Late        int            `json:"late"` // calls that the downstream service has refused
	P50         float64        `json:"wait_p50_s"`
	P95         float64        `json:"wait_p95_s"`
	Held        bool           `json:"held"`
	Wrong       []string       `json:"wrong,omitempty"`
	By          map[string]int `json:"served_by"`

	phase   string
	promise promise
	from    int64 // by hostclock
	answers []waits.Answer
}

// settle counts the answers of a row and compares them with its promise.
func (r *row) settle() {
	var waited []time.Duration
	r.By = map[string]int{}
	for _, a := range r.answers {
		switch a.Status {
		case http.StatusOK:
			r.Served++
			r.By[a.Instance]++
			waited = append(waited, a.Waited)
		case http.StatusTooManyRequests:
			r.Full++
		case http.StatusServiceUnavailable:
			r.Unavailable++
		default:
			r.Other++
		}
		if a.Without && a.Admitted >= r.from { // not one that began in the row before
			r.Without++
		}
	}
	r.P50, r.P95 = waits.Percentile(waited, 50), waits.Percentile(waited, 95)
	r.Bound, r.Wrong = r.promise.Bound, append(r.Wrong, judge(r.promise, r)...)
	r.Held = len(r.Wrong) == 0
}

// judge returns where a row differs from its promise.
func judge(p promise, r *row) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	count := func(what string, got int, want span) {
		if !want.holds(got) {
			bad("%s: %d, want %v", what, got, want)
		}
	}
	if p.Bound > 0 && r.Peak > p.Bound {
		bad("%d calls ran at the same time, the bound is %d", r.Peak, p.Bound)
	}
	if r.Peak < p.Least {
		bad("at most %d calls ran at the same time, want at least %d: the row shows nothing", r.Peak, p.Least)
	}
	count("answers with 200", r.Served, p.Served)
	count("answers with 429", r.Full, p.Full)
	count("answers with 503", r.Unavailable, p.Unavailable)
	count("other answers", r.Other, p.Other)
	count("requests without a permit", r.Without, p.Without)
	if p.From != "" && r.By[p.From] == 0 {
		bad("%s has served no request", p.From)
	}
	early := 0
	for _, a := range r.answers {
		if a.Status == http.StatusTooManyRequests && a.Took < wait {
			early++
		}
	}
	if early > 0 && !p.Early && r.Unavailable == 0 {
		bad("%d answers with 429 came before %v had passed", early, wait)
	}
	return wrong
}
