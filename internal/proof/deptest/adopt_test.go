package deptest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What each screen of docs/adopt.md answers, by the bold words that begin a line of it. What is the session's is said
// there once, and a screen may add to it.
var (
	answersOfScreens = []string{"Options", "Alerts", "Load", "Stored in the clear", "Test"}
	answersOfSession = []string{"Role", "Logger", "Graceful stop"}
)

// adoptScreens are the headings of the screens, with how the rows of tables begin that are about the package.
var adoptScreens = map[string][]string{
	"concurrency": {"`concurrency`"}, "limits": {"limits"}, "schedlock": {"`schedlock`"}, "idempotency": {"`idempotency`"},
	"The command": {"the command", "`etcdkit run`"},
}

// adoptTables are the two questions that have a row for each package.
var adoptTables = []string{"5,000 requests a second", "etcd away for ten minutes"}

// answered is a line of a screen that has something to say: "- **Load**: …", or "- **Load and space**: …".
var answered = regexp.MustCompile(`(?m)^- \*\*([A-Z][^*]*)\*\*(?: \([^\n]*\))?: \S`)

// section returns what is below a heading of the second level.
func section(page, title string) string {
	_, text, _ := strings.Cut("\n"+page, "\n## "+title+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// adoptBreaches are the questions that a screen does not answer.
func adoptBreaches(page string) (found []string) {
	says := func(screen, answer string) bool {
		return slices.ContainsFunc(answered.FindAllStringSubmatch(section(page, screen), -1), func(m []string) bool {
			return m[1] == answer || strings.HasPrefix(m[1], answer+" and ")
		})
	}
	for _, answer := range answersOfSession {
		if !says("Session", answer) {
			found = append(found, "Session: no line for "+answer)
		}
	}
	for screen, rows := range adoptScreens {
		for _, answer := range answersOfScreens {
			if !says(screen, answer) {
				found = append(found, screen+": no line for "+answer)
			}
		}
		for _, table := range adoptTables {
			if !slices.ContainsFunc(rows, func(row string) bool { return strings.Contains(section(page, table), "\n| "+row) }) {
				found = append(found, fmt.Sprintf("%s: no row in %q", screen, table))
			}
		}
	}
	return found
}

// Each screen of the page for those who adopt a package has an answer to the same questions.
func TestAdoptScreens(t *testing.T) {
	page := pages(t)["docs/adopt.md"]
	for _, breach := range adoptBreaches(page) {
		t.Errorf("docs/adopt.md: %s", breach)
	}
	for text, without := range map[string]string{
		"- **Load and space**: ": "idempotency: no line for Load", "- **Role**: `readwrite`": "Session: no line for Role", "\n| the command | ": "The command: no row in \"5,000",
		"\n| limits | ": "limits: no row in \"etcd away", "\n## limits\n": "limits: no line for Test", "\n| limits by key ": "limits: no row in \"5,000",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page has no %q", text)
		} else if got := adoptBreaches(strings.Replace(page, text, "\n", 1)); !strings.Contains(strings.Join(got, "\n"), without) {
			t.Errorf("without %q: breaches %q, want %q", text, got, without)
		}
	}
}
