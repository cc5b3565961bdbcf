package signals

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Metrics are metrics by name, with the labels that their series may have.
type Metrics map[string][]string

// ofTargets are the labels that Prometheus or its user gives to all series of a target.
var ofTargets = []string{"instance", "job", "etcdkit_cluster"}

// kept are the labels that each grouping of a rule or a panel about this library keeps, so that two etcd clusters are two.
var kept = []string{"etcdkit_cluster"}

// words are the values that labels may have, where the library has a list of them.
var words = map[string][]string{
	"etcdkit_kind": {"semaphore", "mutex", "election", "limiter", "limiter_total", "rate", "job", "store"},
	"etcdkit_op":   {"acquire", "hold", "release", "campaign", "lead", "claim", "run", "begin", "execute", "record"},
	"etcdkit_result": {
		"granted", "replayed", "refused", "gave_up", "released", "unconfirmed", "done", "failed", "abandoned", "lost", "error",
	},
	"etcdkit_reason": {
		"full", "held", "mismatch", "too_many", "claimed", "busy", "paused", "cooldown", "late", "in_progress", "unknown", "conflict",
		"near_quota", "settled", "exceeded", "waited", "canceled", "deadline", "wait", "unavailable", "session", "key_gone", "too_long",
		"evicted", "fenced", "invalid", "closed", "etcd", "by_id", "panic", "not_confirmed",
	},
	"etcdkit_state":  {"in_progress", "done", "failed", "released", "unreadable", "unknown", "orphaned"},
	"etcdkit_policy": {"closed", "open", "share"},
}

// selector is a metric of this library in a query, with what its labels are compared with.
type selector struct {
	name     string
	matchers [][2]string // a label, and the value or the expression
}

// grouping is a list of labels in a query.
type grouping struct {
	word   string // by, on, group_left and so on
	labels []string
	scope  string // of by: what is aggregated
}

var (
	word     = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	list     = regexp.MustCompile(`^\s*\(([^()]*)\)\s*`)
	matchers = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	braces   = regexp.MustCompile(`^\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}`)
	text     = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	groups   = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	// filters are what an aggregated expression is compared with: its labels are not in the result.
	filters = regexp.MustCompile(`(?:and|unless) on \([^()]*\).*?( or |$)`)
)

// parse returns the selectors and the groupings of a query, as far as they are about this library.
func parse(query string) (found []selector, lists []grouping) {
	for rest := query; rest != ""; {
		if s := text.FindString(rest); s != "" {
			rest = rest[len(s):]
			continue
		}
		w := word.FindString(rest)
		if w == "" {
			rest = rest[1:]
			continue
		}
		rest = rest[len(w):]
		switch m := list.FindStringSubmatch(rest); {
		case slices.Contains(groups, w) && m != nil:
			rest = rest[len(m[0]):]
			lists = append(lists, grouping{w, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }), balanced(rest)})
		case strings.HasPrefix(w, "etcdkit_"):
			s := selector{name: w}
			in := braces.FindString(rest)
			for _, m := range matchers.FindAllStringSubmatch(in, -1) {
				s.matchers = append(s.matchers, [2]string{m[1], m[2]})
			}
			rest = rest[len(in):]
			found = append(found, s)
		}
	}
	return found, lists
}

// balanced returns the parenthesis with which a text begins, or "".
func balanced(s string) string {
	depth := 0
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return s[:i]
		}
	}
	return ""
}

// metricsIn returns the metrics of this library in a query.
func metricsIn(query string) (names []string) {
	found, _ := parse(query)
	for _, s := range found {
		names = append(names, s.name)
	}
	return names
}

// breaches returns what a query asks of metrics that they do not have: a metric, a label, a value.
func breaches(query string, published Metrics) (wrong []string) {
	found, lists := parse(query)
	has := func(metric, label string) bool {
		return slices.Contains(published[metric], label) || slices.Contains(ofTargets, label)
	}
	for _, s := range found {
		if _, ok := published[s.name]; !ok {
			wrong = append(wrong, s.name+" is not published")
			continue
		}
		for _, m := range s.matchers {
			if !has(s.name, m[0]) {
				wrong = append(wrong, fmt.Sprintf("%s has no label %s", s.name, m[0]))
			}
			for value := range strings.SplitSeq(m[1], "|") {
				if known := words[m[0]]; known != nil && !slices.Contains(known, value) {
					wrong = append(wrong, fmt.Sprintf("no %s is %q", m[0], value))
				}
			}
		}
	}
	for _, g := range lists {
		of := metricsIn(query)
		if g.word == "by" {
			of = metricsIn(filters.ReplaceAllString(g.scope, "$1"))
		}
		for _, metric := range of {
			for _, label := range g.labels {
				if !has(metric, label) {
					wrong = append(wrong, fmt.Sprintf("%s (%s): %s has no such label", g.word, label, metric))
				}
			}
		}
		for _, label := range kept {
			if (g.word == "by" || g.word == "on") && len(of) > 0 && !slices.Contains(g.labels, label) {
				wrong = append(wrong, fmt.Sprintf("%s (%s) drops %s", g.word, strings.Join(g.labels, ", "), label))
			}
		}
	}
	return wrong
}
