package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/waits"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	ok := waits.Answer{Status: http.StatusOK, Waited: time.Second, Instance: "pod-1"}
	full := waits.Answer{Status: http.StatusTooManyRequests, Took: wait}
	gone := waits.Answer{Status: http.StatusServiceUnavailable}
	dead := waits.Answer{Status: http.StatusBadGateway}
	without := waits.Answer{Status: http.StatusOK, Instance: "pod-2", Without: true}
	early := waits.Answer{Status: http.StatusTooManyRequests, Took: wait - time.Millisecond}
	calm := promise{Bound: 10, Least: 4, Served: some, Full: anyNumber}
	for name, c := range map[string]struct {
		promise promise
		peak    int
		answers []waits.Answer
		wrong   string // empty: kept
	}{
		"kept":                      {calm, 10, []waits.Answer{ok, full}, ""},
		"above the bound":           {calm, 11, []waits.Answer{ok, full}, "11 calls ran at the same time, the bound is 10"},
		"no bound":                  {promise{Served: some, Without: some}, 40, []waits.Answer{ok, without}, ""},
		"nothing shown":             {calm, 3, []waits.Answer{ok}, "want at least 4"},
		"nothing served":            {calm, 4, []waits.Answer{full}, "answers with 200: 0, want at least 1"},
		"unavailable":               {calm, 4, []waits.Answer{ok, gone}, "answers with 503: 1, want 0"},
		"no answer":                 {calm, 4, []waits.Answer{ok, {}}, "other answers: 1, want 0"},
		"a dead server":             {calm, 4, []waits.Answer{ok, dead}, "other answers: 1, want 0"},
		"without a permit":          {calm, 4, []waits.Answer{ok, without}, "requests without a permit: 1, want 0"},
		"refused before the wait":   {calm, 4, []waits.Answer{ok, early}, "1 answers with 429 came before 4s"},
		"refused early, as allowed": {promise{Served: some, Full: some, Early: true}, 4, []waits.Answer{ok, early}, ""},
		"refused early, no answer":  {promise{Served: some, Full: some, Unavailable: some}, 4, []waits.Answer{ok, early, gone}, ""},
		"served by another":         {promise{Served: some, From: "pod-2"}, 4, []waits.Answer{ok}, "pod-2 has served no request"},
	} {
		r := &row{promise: c.promise, Peak: c.peak, answers: c.answers}
		r.settle()
		wrong := strings.Join(r.Wrong, "; ")
		if r.Held != (c.wrong == "") || !strings.Contains(wrong, c.wrong) || len(r.Wrong) > 1 {
			t.Errorf("%s: %q, want %q", name, wrong, c.wrong)
		}
	}
	r := &row{answers: []waits.Answer{ok, without, full, gone, dead, {}}}
	r.settle()
	if r.Served != 2 || r.Full != 1 || r.Unavailable != 1 || r.Other != 2 || r.Without != 1 || r.By["pod-1"] != 1 || r.P95 != 1 {
		t.Errorf("%+v", r)
	}
	before, since := without, without
	before.Admitted, since.Admitted = 99, 100
	r = &row{from: 100, answers: []waits.Answer{before, since}}
	if r.settle(); r.Without != 1 {
		t.Errorf("%d requests without a permit began in the row, want 1", r.Without)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for s, want := range map[span]string{none: "0", some: "at least 1", {2, 3}: "2 to 3"} {
		if s.String() != want {
			t.Errorf("%v, want %q", s, want)
		}
	}
}
