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

// result is what became of one order: what its client got, what the provider's book says, and
// what stands in etcd.
type result struct {
	Order    string
	First    []answer // to the requests that were sent at once
	Later    []answer // to what was sent afterwards
	Book     book
	Paid     string // the receipt that the order has
	Reported bool   // an operator saw its outcome listed as unknown
}

// promise is what has to be true of each order of a phase.
type promise struct {
	// Good, Conflict and Other count the first answers: with 2xx, 409 and anything else.
	Good, Conflict, Other span
	// Codes are what the guards may say, in answers of their own.
	Codes []string
	// Later is how the last of the later answers end, by status.
	Later   []int
	Charges span
	// Originals counts the answers with 2xx that are not marked as replays. All with
	// 2xx have to be alike.
	Originals span
	// Reported says that its outcome had to be listed as unknown.
	Reported bool
}

// span is from a number to another.
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

// judge compares what happened with what was promised.
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
				wrong("%d is said to be %q", a.Status, code)
			}
		}
		if got := r.last(len(p.Later)); !slices.Equal(got, p.Later) {
			wrong("afterwards %v, want %v", got, p.Later)
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
				wrong("the client has %.200q, the order %q, the provider %q", a.Body, r.Paid, r.Book.Receipts)
				break
			}
		}
	}
	return violations
}

// goods are all answers with 2xx.
func (r result) goods() (all []answer) {
	for _, a := range slices.Concat(r.First, r.Later) {
		if a.good() {
			all = append(all, a)
		}
	}
	return all
}

// replayHeader marks replays.
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

// differences tells how the answers with 2xx differ, but for Date and the replay header.
func (r result) differences() string {
	alike := func(h http.Header) http.Header {
		h = h.Clone()
		h.Del("Date")
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

// faults tells what is wrong with a way that promises nothing. Each order should be
// charged once, and its client have the receipt, if he goes on asking.
func faults(results []result) (all []string) {
	var twice, most, never, unheard int
	for _, r := range results {
		switch {
		case r.Book.Charges > 1:
			twice++
			most = max(most, r.Book.Charges)
		case r.Book.Charges == 0:
			never++
		}
		if last := r.last(1); r.Book.Charges > 0 && len(last) > 0 && (last[0] < 200 || last[0] > 299) {
			unheard++
		}
	}
	tell := func(n int, format string, args ...any) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d of %d orders ", n, len(results))+fmt.Sprintf(format, args...))
		}
	}
	tell(twice, "charged more than once, up to %d times", most)
	tell(never, "never charged, although the provider is back")
	tell(unheard, "paid, and the same request again does not get the receipt")
	return all
}

// row is a line of a table: orders with which the same happened.
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

// calls are how often the provider was called for an order: the least and the most.
type calls struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (c calls) String() string { return strings.ReplaceAll(span{c.Min, c.Max}.String(), " to ", "-") }

// tally counts what happened to one order.
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
			continue // it was asked again and again
		}
		t.Later = strings.TrimSpace(fmt.Sprintf("%s %d", t.Later, status))
	}
	return t
}

// table adds up the orders with which the same happened, the most first.
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
