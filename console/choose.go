package console

import (
	"slices"
)

// option is a link that selects rows of a list, or sorts them.
type option struct {
	Label, Href           string
	Count                 int
	Counted, Current, Bad bool
}

// chips are the options of one kind.
type chips struct {
	Label   string
	Options []option
}

// choice selects rows of a list.
type choice[T any] struct {
	name, label string
	bad         bool
	is          func(T) bool
}

// choose returns the rows that a parameter of the address selects, and a link for each choice that selects any. A choice
// that there is not selects all of them.
func choose[T any](q request, param, label string, rows []T, choices []choice[T]) ([]T, chips) {
	chosen := q.URL.Query().Get(param)
	known := slices.ContainsFunc(choices, func(c choice[T]) bool { return c.name == chosen })
	out := chips{label, []option{{Label: "all", Href: q.with(param, ""), Count: len(rows), Counted: true, Current: !known}}}
	kept := rows
	for _, c := range choices {
		current := c.name == chosen
		var is []T
		for _, row := range rows {
			if c.is(row) {
				is = append(is, row)
			}
		}
		if len(is) > 0 || current {
			out.Options = append(out.Options, option{c.label, q.with(param, c.name), len(is), true, current, c.bad && len(is) > 0})
		}
		if current {
			kept = is
		}
	}
	return kept, out
}

// sorting is an order of the rows of a list.
type sorting[T any] struct {
	name, label string
	compare     func(a, b T) int
}

// sorted returns rows in the order that the address has, and a link for each order. The first one is that in which the
// rows are.
func sorted[T any](q request, rows []T, orders []sorting[T]) ([]T, chips) {
	chosen := q.URL.Query().Get("sort")
	out := chips{Label: "Sort"}
	for i, o := range orders {
		name, current := o.name, o.name == chosen
		if current && i > 0 {
			rows = slices.Clone(rows) // all viewers share them
			slices.SortStableFunc(rows, o.compare)
		}
		if i == 0 {
			name, current = "", !slices.ContainsFunc(orders[1:], func(o sorting[T]) bool { return o.name == chosen })
		}
		out.Options = append(out.Options, option{Label: o.label, Href: q.with("sort", name), Current: current})
	}
	return rows, out
}
