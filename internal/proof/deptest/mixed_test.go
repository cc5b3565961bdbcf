package deptest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	recordType = regexp.MustCompile(`(?m)^type ([A-Z]\w*) struct \{\n\theader$`)
	recordName = regexp.MustCompile("`([A-Z]\\w*)`")
)

// mixedBreaches compares the records that the note says a mixed run has, or has not, with those that exist.
func mixedBreaches(note string, exist []string) (found []string) {
	lists := map[string][]string{}
	for _, start := range []string{"Its records are ", "It has no "} {
		_, rest, ok := strings.Cut(note, start)
		if !ok {
			return []string{"no sentence begins with " + start}
		}
		sentence, _, _ := strings.Cut(rest, ".")
		for _, m := range recordName.FindAllStringSubmatch(sentence, -1) {
			lists[m[1]] = append(lists[m[1]], start)
		}
	}
	for _, name := range exist {
		if len(lists[name]) != 1 {
			found = append(found, name+" is not in one of the two lists")
		}
		delete(lists, name)
	}
	for name := range lists {
		found = append(found, name+" is no record")
	}
	slices.Sort(found)
	return found
}

// A775: design note 55 says of each record whether client processes of two builds exchange it in the part mixed of make
// release-check. A new one has to be put there.
func TestMixedRunListsRecords(t *testing.T) {
	t.Parallel()
	var exist []string
	files, err := filepath.Glob("../../record/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, m := range recordType.FindAllStringSubmatch(readFile(t, file), -1) {
			exist = append(exist, m[1])
		}
	}
	if len(exist) < 15 {
		t.Fatalf("internal/record has the records %v: the test does not find them", exist)
	}
	for _, breach := range mixedBreaches(readFile(t, "../../../docs/design/0055-releases.md"), exist) {
		t.Errorf("docs/design/0055-releases.md: %s", breach)
	}
	for name, note := range map[string]string{
		"B is not in one of the two lists": "Its records are `A`. It has no `C`.",
		"D is no record":                   "Its records are `A` and `B`. It has no `C` and no `D`.",
		"A is not in one of the two lists": "Its records are `A` and `B`. It has no `C` and no `A`.",
	} {
		if got := mixedBreaches(note, []string{"A", "B", "C"}); !slices.Equal(got, []string{name}) {
			t.Errorf("%q: found %q, want %q", note, got, name)
		}
	}
}
