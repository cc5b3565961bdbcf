package exporter

import "regexp"

// SetPage sets how many keys are read at once. It is called before Run.
func (e *Exporter) SetPage(n int64) { e.fleet.SetPage(n) }

// Metrics returns the names of all metrics.
func Metrics() (names []string) {
	for _, d := range newDescs("x").all {
		names = append(names, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	return names
}
