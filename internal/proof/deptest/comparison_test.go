package deptest

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

var (
	citation = regexp.MustCompile(`\[(\d+)\](?:[^(]|$)`)
	source   = regexp.MustCompile(`(?m)^(\d+)\. `)
)

// sourceBreaches compares the numbers that a page cites with the one list of its sources: they count from 1, each is
// there once, and each is cited.
func sourceBreaches(page, sources string) (found []string) {
	cited := map[string]bool{}
	for _, m := range citation.FindAllStringSubmatch(page, -1) {
		cited[m[1]] = true
	}
	listed := source.FindAllStringSubmatch(sources, -1)
	for i, m := range listed {
		if m[1] != strconv.Itoa(i+1) {
			found = append(found, fmt.Sprintf("source %s is the %d. of the list", m[1], i+1))
		}
		if !cited[m[1]] {
			found = append(found, "no fact is from source "+m[1])
		}
		delete(cited, m[1])
	}
	for number := range cited {
		found = append(found, "the list has no source "+number)
	}
	return found
}

// Each number on the page of comparisons is that of a source, and each source has a fact there.
func TestComparisonSources(t *testing.T) {
	all := pages(t)
	for _, breach := range sourceBreaches(all["docs/comparison.md"], all["internal/proof/comparison-sources.md"]) {
		t.Error(breach)
	}
	const list = "1. a\n2. b\n"
	for page, breaches := range map[string]int{
		"x [1] y [2], [1]": 0, "x [1] [2](b.md)": 1, "x [1] [2] [3]": 1, "": 2,
	} {
		if got := sourceBreaches(page, list); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", page, got, breaches)
		}
	}
	for sources, breaches := range map[string]int{"1. a\n1. b\n2. c\n": 3, "2. a\n1. b\n": 2, "text 1. a\n": 2} {
		if got := sourceBreaches("[1] [2]", sources); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", sources, got, breaches)
		}
	}
}
