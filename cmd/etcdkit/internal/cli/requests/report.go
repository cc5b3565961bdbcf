package requests

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/idempotency"
)

// What is done to many requests, and what was.

// alike are requests of which the same becomes.
type alike struct {
	State    string `json:"state"`
	Policy   string `json:"policy"`
	Alive    bool   `json:"process_alive"`
	Requests int    `json:"requests"`
	Effect   string `json:"effect"`
}

// policyOf names the policy of a request.
func policyOf(refuse bool) string {
	if refuse {
		return "refuse"
	}
	return "take-over"
}

// planOf counts the requests that are selected, and says what becomes of them.
func planOf(found []idempotency.Record, what account, force bool) []alike {
	counts := map[alike]int{}
	for _, r := range found {
		counts[alike{State: nameOf(r.State), Policy: policyOf(r.Refuse), Alive: r.Alive, Effect: effect(r, what, force)}]++
	}
	plan := make([]alike, 0, len(counts))
	for c, n := range counts {
		c.Requests = n
		plan = append(plan, c)
	}
	slices.SortFunc(plan, func(a, b alike) int { return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Effect, b.Effect)) })
	return plan
}

// effect says what duplicates of a request get from now on, in place of what they would get.
func effect(r idempotency.Record, what account, force bool) string {
	switch {
	case r.Alive && !force:
		return "none: the process lives"
	case what.again && r.Refuse:
		return "the next duplicate does the work; it would be refused"
	case what.again:
		return "none: the next duplicate does the work, as it would"
	case r.Refuse:
		return "duplicates get the failure; they would be refused"
	}
	return "duplicates get the failure for good; the next one would do the work again"
}

// showPlan shows which requests are selected, and what becomes of them.
func (v *resolving) showPlan(found []idempotency.Record, plan []alike) error {
	t := output.NewTable(v.call.Std.Err)
	(&requestListing{}).tableOf(t, shownRecords(found), false)
	if err := t.Flush(); err != nil {
		return err
	}
	t = output.NewTable(v.call.Std.Err)
	t.Row("REQUESTS", "STATE", "POLICY", "PROCESS", "EFFECT")
	for _, a := range plan {
		t.Row(a.Requests, a.State, a.Policy, map[bool]string{true: "lives", false: "-"}[a.Alive], a.Effect)
	}
	return t.Flush()
}

// refused is a request that was not resolved.
type refused struct {
	Ref   idempotency.Ref `json:"ref"`
	Error string          `json:"error"`
}

// resolved is what was done to the requests that were selected.
type resolved struct {
	output.Form
	Selected []alike           `json:"selected"`
	Resolved []idempotency.Ref `json:"resolved_refs"`
	Refused  []refused         `json:"refused"`
	Left     []idempotency.Ref `json:"left_refs"` // the first may be resolved or not, the others are as before
}

// report prints which requests were resolved, and fails if some were not. stopped is the error at which that ended.
func (v *resolving) report(done *resolved, stopped error) error {
	err := v.call.PrintChange(done, func(t *output.Table) {
		for _, r := range done.Refused {
			t.Line("not resolved: " + string(r.Ref) + ": " + r.Error)
		}
		if stopped != nil {
			for _, ref := range done.Resolved {
				t.Line("resolved: " + string(ref))
			}
		}
		t.Line(output.Count(len(done.Resolved), "request", "requests") + " resolved")
	})
	switch {
	case stopped != nil && len(done.Left) > 0:
		return fmt.Errorf("%d of %d requests are resolved, %s may be, and those after it are as before; the same command continues, "+
			"since it selects no request that is resolved: %w",
			len(done.Resolved), len(done.Resolved)+len(done.Refused)+len(done.Left), done.Left[0], stopped)
	case stopped != nil:
		return stopped
	case err == nil && len(done.Refused) > 0:
		return fmt.Errorf("%s not resolved, and as before", output.Count(len(done.Refused), "request is", "requests are"))
	}
	return err
}
