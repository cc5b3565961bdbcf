package exporter

import (
	"regexp"
	"strings"
)

// SetPage sets how many keys are read at once. It is called before Run.
func (e *Exporter) SetPage(n int64) { e.fleet.SetPage(n) }

var desc = regexp.MustCompile(`fqName: "(\w+)".* constLabels: \{(\w+)=.*variableLabels: \{([^}]*)\}`)

// Metrics returns the names of all metrics, with their labels.
func Metrics() map[string][]string {
	all := map[string][]string{}
	for _, d := range newDescs("x").all {
		m := desc.FindStringSubmatch(d.String())
		all[m[1]] = []string{m[2]}
		if m[3] != "" {
			all[m[1]] = append(all[m[1]], strings.Split(m[3], ",")...)
		}
	}
	return all
}
