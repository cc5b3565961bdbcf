package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// result is the result of one order: the answers that its client got, the provider's book, and
// the receipt in etcd.
type result struct {
	Order    string
	First    []answer // to the five requests
	Later    []answer // to the requests after them
	Book     book
	Paid     string // the receipt that is stored with the order
	Reported bool   // its outcome was listed as unknown
}

// promise is what has to hold for each order of a phase.
type promise struct {
	// Good, Conflict and Other count the first answers: with 2xx, 409 and anything else.
	Good, Conflict, Other span
	// Codes are the codes that the middleware may answer with.
	Codes []string
	// Later are the statuses of the last of the later answers.
	Later   []int
	Charges span
	// Originals counts the answers with 2xx that are no replays. All answers with 2xx have to be
	// the same.
	Originals span
	// Reported says whether its outcome has to be listed as unknown.
	Reported bool
}

// span is a range of numbers.
type span struct{ min, max int }

func exactly(n int) span        { return span{n, n} }
func between(min, max int) span { return span{min, max} }
func (s span) holds(n int) bool { return s.min <= n && n <= s.max }
func (s span) String() (is string) {
	if s.min == s.max {
		return fmt.Sprint(s.min)
	}
	return fmt.Sprintf("%d to %d", s.min, s.max)
}

// judge returns where the results differ from the promise.
func judge(p promise, results []result) (violations []string) {
	for _, r := range results {
		wrong := func(format string, args ...any) {
			violations = append(violations, r.Order+": "+fmt.Sprintf(format, args...))
		}
		count := func(what string, got int, want span) {
			if !want.holds(got) {
				wrong("%s: %d, want %v", what, got, want)
			}
		}
		t := tally(r)
		count("answers with 2xx", t.Good, p.Good)
		count("answers with 409", t.Conflict, p.Conflict)
		count("other answers", t.Other, p.Other)
		count("charges", t.Charges, p.Charges)
		count("answers that are no replays", r.originals(), p.Originals)
		for _, a := range slices.Concat(r.First, r.Later) {
			if code := a.code(); code != "" && !slices.Contains(p.Codes, code) {
				wrong("unexpected code %q, status %d", code, a.Status)
			}
		}
		if got := r.last(len(p.Later)); !slices.Equal(got, p.Later) {
			wrong("statuses of later answers: %v, want %v", got, p.Later)
		}
		if d := r.differences(); d != "" {
			wrong("%s", d)
		}
		if r.Reported != p.Reported {
			wrong("listed as unknown: %t, want %t", r.Reported, p.Reported)
		}
		for _, a := range r.goods() {
			var got receipt
			if err := json.Unmarshal(a.Body, &got); err != nil || got.Charge != r.Paid || !slices.Contains(r.Book.Receipts, got.Charge) {
				wrong("receipts differ: the client has %.200q, the order %q, the provider %q", a.Body, r.Paid, r.Book.Receipts)
				break
			}
		}
	}
	return violations
}

// goods returns the answers with 2xx.
func (r result) goods() (all []answer) {
	for _, a := range slices.Concat(r.First, r.Later) {
		if a.good() {
			all = append(all, a)
		}
	}
	return all
}

// replayHeader is the header of a replay.
const replayHeader = "Idempotent-Replayed"

func (r result) originals() (n int) {
	for _, a := range r.goods() {
		if a.Header.Get(replayHeader) == "" {
			n++
		}
	}
	return n
}

// last returns the statuses of the last n later answers.
func (r result) last(n int) (all []int) {
	for _, a := range r.Later[max(0, len(r.Later)-n):] {
		all = append(all, a.Status)
	}
	return all
}

// differences describes how the answers with 2xx differ, except for Date, the replay header and Connection, which is of
// the connection and not of the answer.
func (r result) differences() string {
	alike := func(h http.Header) http.Header {
		h = h.Clone()
		h.Del("Date")
		h.Del("Connection")
		h.Del(replayHeader)
		return h
	}
	all := r.goods()
	for _, a := range all {
		switch first := all[0]; {
		case a.Status != first.Status:
			return fmt.Sprintf("statuses differ: %d and %d", first.Status, a.Status)
		case !bytes.Equal(a.Body, first.Body):
			return fmt.Sprintf("bodies differ: %.200q and %.200q", first.Body, a.Body)
		case !reflect.DeepEqual(alike(a.Header), alike(first.Header)):
			return fmt.Sprintf("headers differ: %v and %v", first.Header, a.Header)
		}
	}
	return ""
}

// faults describes what one of the other ways gets wrong. Each order should be charged once, and
// a client that repeats its request should get the receipt.
func faults(results []result) (all []string) {
	var twice, most, never, unpaid int
	for _, r := range results {
		switch {
		case r.Book.Charges > 1:
			twice++
			most = max(most, r.Book.Charges)
		case r.Book.Charges == 0:
			never++
		}
		if last := r.last(1); r.Book.Charges > 0 && len(last) > 0 && (last[0] < 200 || last[0] > 299) {
			unpaid++
		}
	}
	count := func(n int, format string, args ...any) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d of %d orders ", n, len(results))+fmt.Sprintf(format, args...))
		}
	}
	count(twice, "charged more than once, up to %d times", most)
	count(never, "never charged, although the provider is available again")
	count(unpaid, "charged, and a repeated request does not get the receipt")
	return all
}

// row is a row of a table: the orders with the same result.
type row struct {
	Orders   int    `json:"orders"`
	Good     int    `json:"2xx"`
	Conflict int    `json:"409"`
	Other    int    `json:"other"`
	Others   string `json:"others,omitempty"` // by status
	Later    string `json:"afterwards"`
	Charges  int    `json:"charges"`
	Calls    calls  `json:"calls"`
}

// calls are the smallest and the greatest number of the provider's calls for an order.
type calls struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (c calls) String() string { return strings.ReplaceAll(span{c.Min, c.Max}.String(), " to ", "-") }

// tally returns the row of one order.
func tally(r result) row {
	t := row{Orders: 1, Charges: r.Book.Charges, Calls: calls{r.Book.Calls, r.Book.Calls}}
	others := map[int]int{}
	for _, a := range r.First {
		switch {
		case a.good():
			t.Good++
		case a.Status == http.StatusConflict:
			t.Conflict++
		default:
			t.Other++
			others[a.Status]++
		}
	}
	for _, status := range slices.Sorted(maps.Keys(others)) {
		t.Others = strings.TrimSpace(fmt.Sprintf("%s %dx%d", t.Others, others[status], status))
	}
	for i, status := range r.last(len(r.Later)) {
		if i > 0 && r.Later[i-1].Status == status {
			continue // the same answer to a repeated request
		}
		t.Later = strings.TrimSpace(fmt.Sprintf("%s %d", t.Later, status))
	}
	return t
}

// table groups the orders with the same result, the most frequent first.
func table(results []result) (all []row) {
	for _, r := range results {
		t := tally(r)
		i := slices.IndexFunc(all, func(o row) bool { o.Orders, o.Calls = 1, t.Calls; return o == t })
		if i < 0 {
			all = append(all, t)
			continue
		}
		all[i].Orders++
		all[i].Calls = calls{min(all[i].Calls.Min, t.Calls.Min), max(all[i].Calls.Max, t.Calls.Max)}
	}
	slices.SortStableFunc(all, func(a, b row) int { return b.Orders - a.Orders })
	return all
}
