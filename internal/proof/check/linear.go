package check

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Linear is C4: calls and returns alone, by porcupine. Is there an order of all
// operations on a queue, in agreement with the clock, in which each makes sense for
// a store that knows a limit and the holders? It knows nothing of queues and ranks, so
// it finds what the other checkers might misunderstand together. What the tap has seen
// takes effect in the order of its revisions: a tap that was cut off sees hundreds of
// changes at one moment, and their other orders are too many to try.
//
// Its rule:
//
//	order     there is no such order
//	search    it was not found in time whether there is one: inconclusive
//
// Operations are built in linear_ops.go. A result that its caller did not learn
// counts both ways, unless the tap shows it.
type Linear struct{}

// Name implements Checker.
func (Linear) Name() string { return "linear" }

// check implements Checker.
func (Linear) check(v *view) []Finding {
	timeout := linearTimeout(v.h)
	var f []Finding
	for _, name := range v.queues() {
		ops := v.linearOps(name)
		begun := time.Now()
		found := porcupine.CheckOperationsTimeout(v.model(name), ops, timeout)
		if found == porcupine.Ok && time.Since(begun) > timeout {
			found = porcupine.Unknown // the bound decides, not which goroutine was scheduled first
		}
		switch found {
		case porcupine.Ok:
		case porcupine.Unknown:
			f = append(f, unclear("search", name, "no order of %d operations was found within %s", len(ops), timeout))
		case porcupine.Illegal:
			f = append(f, bad("order", name, 0, "no order of %d operations makes sense%s", len(ops), v.stuck(name, ops, timeout)))
		}
	}
	return f
}

// stuck names the first operation that the longest order has no place for.
func (v *view) stuck(name string, ops []porcupine.Operation, timeout time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(v.model(name), ops, timeout)
	placed := map[int]bool{}
	for _, partition := range info.PartialLinearizations() {
		if len(partition) == 0 {
			continue
		}
		longest := slices.MaxFunc(partition, func(a, b []int) int { return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(b, a)) })
		for _, i := range longest {
			placed[i] = true
		}
	}
	first := -1
	for i, op := range ops {
		if !placed[i] && (first < 0 || op.Return < ops[first].Return) {
			first = i
		}
	}
	if first < 0 || len(placed) == 0 {
		return ""
	}
	return fmt.Sprintf(": the longest has no place for %v", ops[first].Input)
}

func linearTimeout(h *history.History) time.Duration {
	return time.Duration(duration(h, SettingLinear, 30*time.Second))
}

// Picture draws each queue as a page of HTML: an order of its operations, or how far
// the longest ones get. It returns an error of create's or of its files.
func (Linear) Picture(h *history.History, create func(name string) (io.WriteCloser, error)) error {
	v := join(h)
	for _, name := range v.queues() {
		model, ops := v.model(name), v.linearOps(name)
		_, info := porcupine.CheckOperationsVerbose(model, ops, linearTimeout(h))
		file, err := create("linear-" + strings.ReplaceAll(name, "/", "-") + ".html")
		if err != nil {
			return err
		}
		if err := porcupine.Visualize(model, info, file); err != nil {
			_ = file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// queues returns the names of all queues in which anything was asked for.
func (v *view) queues() []string {
	names := map[string]bool{}
	for name := range v.gates {
		names[name] = true
	}
	for i := range v.ops {
		switch v.ops[i].Call.Name {
		case history.Acquire, history.Try, history.SetLimit:
			names[v.ops[i].Call.Gate] = true
		}
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// action is what an operation does to the model.
type action struct {
	kind   string // "acquire", "end", "release", "limit"
	token  int64
	weight int64
	limit  int64
	known  bool // of a limit
	maybe  bool // or not: its caller did not learn

	rev   int64 // at which the tap has seen it; 0 if it has not
	place int   // among those that the tap has seen, from 1 on; 0 of the others
}

// holders is the model's state. Held lists the holders, by token.
type holders struct {
	limit, used, max int64
	place            int // of the last action that the tap has seen
	known            bool
	held             string
}

func (s holders) with(a action) holders {
	s.used += a.weight
	s.max = max(s.max, a.token)
	all := append(strings.Fields(s.held), entry(a))
	slices.Sort(all) // any fixed order will do
	s.held = strings.Join(all, " ")
	return s
}

func (s holders) has(a action) bool { return slices.Contains(strings.Fields(s.held), entry(a)) }

func (s holders) without(a action) holders {
	s.used -= a.weight
	s.held = strings.Join(slices.DeleteFunc(strings.Fields(s.held), func(e string) bool { return e == entry(a) }), " ")
	return s
}

func entry(a action) string {
	return strconv.FormatInt(a.token, 10) + ":" + strconv.FormatInt(a.weight, 10)
}

// model is the sequential specification of one queue.
func (v *view) model(name string) porcupine.Model {
	fixed := v.layout.fixed(name)
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{holders{limit: fixed, known: fixed > 0}} },
		Step: func(state, input, _ any) []any {
			s, a := state.(holders), input.(action)
			var next []any
			if a.maybe {
				next = append(next, s)
			}
			if t, ok := s.step(a, fixed == 1); ok {
				next = append(next, t)
			}
			return next
		},
		DescribeOperation: func(input, _ any) string { return input.(action).String() },
		DescribeState:     func(state any) string { return state.(holders).String() },
	}
	return m.ToModel()
}

// step takes an action, if the state allows it.
func (s holders) step(a action, mutex bool) (holders, bool) {
	if a.place > 0 {
		if s.place++; a.place != s.place {
			return s, false
		}
	}
	switch a.kind {
	case "acquire":
		if !s.known || s.used+a.weight > s.limit || mutex && a.token <= s.max {
			return s, false
		}
		return s.with(a), true
	case "limit":
		s.limit, s.known = a.limit, a.known
		return s, true
	default: // the end of a permit, by whatever
		if !s.has(a) {
			return s, false
		}
		return s.without(a), true
	}
}

func (a action) String() string {
	s := a.kind
	if a.kind == "limit" {
		s += " " + strconv.FormatInt(a.limit, 10)
	} else {
		s += fmt.Sprintf(" token %d weight %d", a.token, a.weight)
	}
	if a.maybe {
		s += " (or not)"
	}
	return s
}

func (s holders) String() string {
	return fmt.Sprintf("%d of %d: %s", s.used, s.limit, cmp.Or(s.held, "none"))
}
