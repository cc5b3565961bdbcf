package deptest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxLines is the most that a file which is no test may hold: one idea fits.
const maxLines = 400

// vague are package names that say nothing about what is inside.
var vague = []string{"util", "utils", "common", "types"}

func sizeBreaches(tr *tree) []string {
	var found []string
	for _, f := range tr.files {
		if !strings.HasSuffix(f.path, "_test.go") && f.lines > maxLines {
			found = append(found, fmt.Sprintf("%s has %d lines, more than %d: it holds more than one idea", f.path, f.lines, maxLines))
		}
		if slices.Contains(vague, f.pkg()) || slices.Contains(vague, path.Base(f.dir)) {
			found = append(found, fmt.Sprintf("%s: the package's name does not say what it is for", f.path))
		}
	}
	return found
}

func TestSize(t *testing.T) {
	for _, breach := range sizeBreaches(repository(t)) {
		t.Error(breach)
	}
}

func TestSizeFails(t *testing.T) {
	long := strings.Repeat("//\n", maxLines)
	tr := planted(t, map[string]string{
		"concurrency/long.go":      long + "package concurrency\n",
		"concurrency/long_test.go": long + "package concurrency\n",
		"concurrency/short.go":     "package concurrency\n",
		"internal/util/x.go":       "package util\n",
		"internal/names/y.go":      "package common\n",
	})
	if got := sizeBreaches(tr); len(got) != 3 {
		t.Errorf("breaches %q, want the long file and the two vague names", got)
	}
}
