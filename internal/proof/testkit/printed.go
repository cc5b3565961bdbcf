package testkit

import (
	"slices"
	"strings"
	"testing"
)

// PrintedOnce fails if a line of an error's text is contained in another line of it.
func PrintedOnce(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if slices.ContainsFunc(lines[i+1:], func(other string) bool {
			return strings.Contains(other, line) || strings.Contains(line, other)
		}) {
			t.Errorf("printed twice: %q", lines)
		}
	}
}
