package deptest

import (
	"slices"
	"strings"
	"testing"
)

// unmeasured returns the figures in the tables of a page, but for their first column, that the measured page has in no
// cell.
func unmeasured(page, measured string) (found []string) {
	cells := strings.FieldsFunc(measured, func(r rune) bool { return r == '|' || r == '\n' || r == ' ' })
	for line := range strings.Lines(page) {
		row := strings.Split(strings.TrimSpace(line), "|")
		if len(row) < 4 || row[0] != "" {
			continue
		}
		for _, cell := range row[2:] {
			figure := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(cell), " µs"), " ms")
			if strings.ContainsAny(figure[:min(1, len(figure))], "0123456789") && !slices.Contains(cells, figure) {
				found = append(found, figure)
			}
		}
	}
	return found
}

// TestFigures holds docs/benchmarks.md to the page that make bench-docs writes.
func TestFigures(t *testing.T) {
	all := pages(t)
	page, measured := all["docs/benchmarks.md"], all["docs/benchmarks/README.md"]
	if !strings.Contains(page, "×") || !strings.Contains(measured, "×") {
		t.Fatal("a page of benchmarks has no ratios")
	}
	for _, figure := range unmeasured(page, measured) {
		t.Errorf("docs/benchmarks.md has %s, which docs/benchmarks/README.md has not measured", figure)
	}
	const old = "| lock | 5.36× | 926 µs | 0.66 ms | – |\n| free | 17 | |\n"
	for measured, want := range map[string]int{"| a | 5.36× | 926 | 17 | 0.66 |\n": 0, "| a | 5.3× | 9260 | 17 | 0.6 |\n": 3, "": 4} {
		if got := unmeasured("text 4\n"+old, measured); len(got) != want {
			t.Errorf("%q: %q, want %d", measured, got, want)
		}
	}
}
