package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// paid is an answer with the receipt, which is a replay or not.
func paid(replayed bool) answer {
	a := answer{Status: 201, Header: http.Header{"Content-Type": {"application/json"}, "Date": {"now"}}, Body: jsonLine(receipt{Order: "o", Amount: 1, Charge: "c1"})}
	if replayed {
		a.Header.Set("Date", "later")
		a.Header.Set(replayHeader, "true")
	}
	return a
}

// refused is an answer of a guard's.
func refused(status int, code string) answer {
	return answer{Status: status, Header: http.Header{}, Body: jsonLine(map[string]string{"code": code})}
}

// once is an order that was paid once, with its duplicates refused.
func once() result {
	busy := refused(409, inProgress)
	return result{Order: "o", First: []answer{busy, busy, busy, busy, paid(false)}, Later: []answer{paid(true)},
		Book: book{Calls: 1, Charges: 1, Receipts: []string{"c1"}}, Paid: "c1"}
}

var strict = promise{Good: exactly(1), Conflict: exactly(4), Charges: exactly(1), Codes: []string{inProgress}, Later: []int{201}, Originals: exactly(1)}

// The judge must be able to fail, each rule of it.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(*result, *promise)
		want   string // part of a violation
	}{
		"all is well":         {func(*result, *promise) {}, ""},
		"charged twice":       {func(r *result, _ *promise) { r.Book.Charges = 2 }, "charges: 2, want 1"},
		"never charged":       {func(r *result, _ *promise) { r.Book.Charges = 0 }, "charges: 0, want 1"},
		"called twice":        {func(r *result, _ *promise) { r.Book.Calls = 2 }, ""},
		"two did it":          {func(r *result, _ *promise) { r.First[0] = paid(true) }, "answers with 2xx: 2, want 1"},
		"no request executed": {func(r *result, _ *promise) { r.First[4] = refused(409, inProgress) }, "answers with 409: 5, want 4"},
		"one got no answer":   {func(r *result, _ *promise) { r.First[0] = answer{} }, "other answers: 1, want 0"},
		"another reason":      {func(r *result, _ *promise) { r.First[0] = refused(409, unknown) }, `unexpected code "unknown", status 409`},
		"an allowed reason": {func(r *result, p *promise) {
			r.First[0], p.Codes = refused(409, unknown), []string{inProgress, unknown}
		}, ""},
		"a replay is not marked":    {func(r *result, _ *promise) { r.Later[0] = paid(false) }, "no replays: 2, want 1"},
		"the first is marked":       {func(r *result, _ *promise) { r.First[4] = paid(true) }, "no replays: 0, want 1"},
		"no replay":                 {func(r *result, _ *promise) { r.Later[0] = refused(409, inProgress) }, "statuses of later answers: [409], want [201]"},
		"asked again for long":      {func(r *result, _ *promise) { r.Later = []answer{refused(409, inProgress), paid(true)} }, ""},
		"not asked again":           {func(r *result, _ *promise) { r.Later = nil }, "statuses of later answers: [], want [201]"},
		"another body":              {func(r *result, _ *promise) { r.Later[0].Body = jsonLine(receipt{Charge: "c1"}) }, "bodies differ"},
		"another status":            {func(r *result, _ *promise) { r.Later[0].Status = 200 }, "statuses differ"},
		"another header":            {func(r *result, _ *promise) { r.Later[0].Header.Set("X", "y") }, "headers differ"},
		"a header more often":       {func(r *result, _ *promise) { r.Later[0].Header.Add("Content-Type", "application/json") }, "headers differ"},
		"another receipt in etcd":   {func(r *result, _ *promise) { r.Paid = "c2" }, "the order \"c2\""},
		"an unknown receipt":        {func(r *result, _ *promise) { r.Book.Receipts = []string{"c2"} }, "the provider"},
		"reported":                  {func(r *result, _ *promise) { r.Reported = true }, "listed as unknown: true"},
		"not reported":              {func(_ *result, p *promise) { p.Reported = true }, "listed as unknown: false"},
		"within a span":             {func(_ *result, p *promise) { p.Good, p.Conflict = between(0, 1), between(3, 4) }, ""},
		"above a span, or below it": {func(_ *result, p *promise) { p.Good, p.Conflict = between(2, 3), between(1, 3) }, "want 2 to 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, p := once(), strict
			x.change(&r, &p)
			got := judge(p, []result{r})
			switch {
			case x.want == "" && len(got) > 0:
				t.Errorf("violations: %q", got)
			case x.want != "" && !strings.Contains(strings.Join(got, "\n"), x.want):
				t.Errorf("violations: %q, want %q", got, x.want)
			}
		})
	}
}

// What is wrong with a way is counted, and not known beforehand.
func TestFaults(t *testing.T) {
	t.Parallel()
	unheard, twice, never := once(), once(), once()
	unheard.Later = []answer{refused(409, "")}
	twice.Book.Charges = 3
	never.Book.Charges, never.Later = 0, []answer{refused(409, "")}
	for _, x := range []struct {
		results []result
		want    []string
	}{
		{[]result{once(), once()}, nil},
		{[]result{once(), twice}, []string{"1 of 2 orders charged more than once, up to 3 times"}},
		{[]result{never}, []string{"1 of 1 orders never charged, although the provider is available again"}},
		{[]result{unheard, once(), unheard}, []string{"2 of 3 orders charged, and a repeated request does not get the receipt"}},
	} {
		if got := faults(x.results); !slices.Equal(got, x.want) {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	other := once()
	other.First[1], other.First[2], other.First[3] = answer{Status: 503}, answer{Status: 502}, answer{Status: 503}
	other.Later = []answer{{Status: 409}, {Status: 409}, {Status: 201}}
	thrice := once()
	thrice.Book.Calls = 3
	got := table([]result{other, once(), thrice})
	want := []row{
		{Orders: 2, Good: 1, Conflict: 4, Later: "201", Calls: calls{1, 3}, Charges: 1},
		{Orders: 1, Good: 1, Conflict: 1, Other: 3, Others: "1x502 2x503", Later: "409 201", Calls: calls{1, 1}, Charges: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for n := range 20 {
		all = append(all, time.Duration(20-n)*time.Millisecond)
	}
	if p50, p95, none := percentile(all, 50), percentile(all, 95), percentile(nil, 50); p50 != 10 || p95 != 19 || none != 0 {
		t.Errorf("%v, %v, %v", p50, p95, none)
	}
}
