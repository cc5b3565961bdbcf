package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Checker judges one aspect of histories. It must not change the history, nor what is
// joined of it, which all have in common; and must give the same findings for the same
// history.
type Checker interface {
	// Name is one word. Mutants are killed by name.
	Name() string
	// check returns what it has found, in any order.
	check(v *view) []Finding
}

// Level says what a finding means.
type Level int

// The levels.
const (
	Excused Level = iota // an exception that is documented and was provoked
	Unclear              // it is unknown
	Bad                  // a rule is broken
)

// String returns a word.
func (l Level) String() string { return [...]string{"excused", "unclear", "bad"}[l] }

// Finding is one thing that a checker has found.
type Finding struct {
	Level   Level
	Checker string // set by Judge
	Rule    string // which rule of the checker's
	Gate    string // which queue, if it is about one
	At      int64  // host clock, 0 if it is about the whole run
	Rev     int64  // revision of etcd, if there is one
	Text    string
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s/%s", f.Level, f.Checker, f.Rule)
	if f.Gate != "" {
		s += " " + f.Gate
	}
	if f.Rev > 0 {
		s += fmt.Sprintf(" rev %d", f.Rev)
	}
	return s + ": " + f.Text
}

func bad(rule, gate string, at int64, format string, args ...any) Finding {
	return Finding{Level: Bad, Rule: rule, Gate: gate, At: at, Text: fmt.Sprintf(format, args...)}
}

func excused(rule, gate string, at int64, format string, args ...any) Finding {
	return Finding{Level: Excused, Rule: rule, Gate: gate, At: at, Text: fmt.Sprintf(format, args...)}
}

func unclear(rule, gate string, format string, args ...any) Finding {
	return Finding{Level: Unclear, Rule: rule, Gate: gate, Text: fmt.Sprintf(format, args...)}
}

// sorted puts findings into an order that does not depend on maps.
func sorted(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(-cmp.Compare(a.Level, b.Level), cmp.Compare(a.Checker, b.Checker), cmp.Compare(a.At, b.At),
			cmp.Compare(a.Rev, b.Rev), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	return findings
}

// ms writes a stretch of the host clock for people.
func ms(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
