package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ruleFiles are the delivered rules, from the root of the repository.
var ruleFiles = []string{"docs/observability/alerts.yaml", "docs/observability/fleet_alerts.yaml"}

var (
	// hours are those of which EtcdkitElectionGone asks. A night does not last for so long: there it asks for ten minutes.
	hours = strings.NewReplacer("[3h]", "[10m]", "[3h:5m] offset 30m) >= 30", "[10m:1m] offset 30m) >= 8")
	// spans are the times of a rule: its ranges, the steps in them, its offsets, and how long it is pending.
	spans = regexp.MustCompile(`(\[|:|offset |for: )(\d+)([smhd])\b`)
	// bounds are numbers with which a line compares seconds, also within parentheses.
	bounds = regexp.MustCompile(`(_seconds.* [<>] )(\d{2,})(\)*)$`)

	units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
)

// leastSpan is the shortest time in a compressed rule, since a range needs two samples, and leastBound the lowest bound:
// on a busy machine a call takes seconds.
const (
	leastSpan  = 3 * scrape
	leastBound = 5 * time.Second
)

// compress returns rules in which a minute lasts for so long. Counts and parts stay as they are, and so does a
// difference of clocks: both are bounds below 10 s, or of no time.
func compress(rules string, minute time.Duration) string {
	shorter := func(d time.Duration) time.Duration { return time.Duration(float64(d) * minute.Seconds() / 60) }
	var out strings.Builder
	for line := range strings.Lines(hours.Replace(rules)) {
		line = spans.ReplaceAllStringFunc(line, func(found string) string {
			m := spans.FindStringSubmatch(found)
			n, _ := strconv.Atoi(m[2])
			return fmt.Sprintf("%s%dms", m[1], max(shorter(time.Duration(n)*units[m[3]]), leastSpan).Milliseconds())
		})
		if m := bounds.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			n, _ := strconv.Atoi(m[2])
			before := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), m[2]+m[3])
			line = fmt.Sprintf("%s%g%s\n", before, max(shorter(time.Duration(n)*time.Second), leastBound).Seconds(), m[3])
		}
		out.WriteString(line)
	}
	return out.String()
}

// writeRules writes the delivered rules, compressed, into a folder.
func writeRules(root, dir string, minute time.Duration) (files []string, err error) {
	for _, name := range ruleFiles {
		rules, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(compress(string(rules), minute)), 0o600); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
