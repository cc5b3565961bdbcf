package deptest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A row of internal/proof/tested-failures.md: | id | test, reason or TODO | what must hold |
var (
	idRow     = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|(.*)\|(.*)\|$`)
	idTest    = regexp.MustCompile("^`(\\w+)\\.((?:Test|Fuzz|Example|Benchmark)\\w*)(?:/[^`]+)?`$")
	idReasons = regexp.MustCompile(`^(?:waits for [^:]+|cannot run here|mended in [^:]+): \S`)
)

// requiredIDs lists what internal/proof/tested-failures.md has to account for: lessons of other
// semaphores (T), failures of a cluster and its clients (F), counterexamples to the protocol
// (S: safety, L: liveness), to the index of requests and permits (W), to hooks (H), to limits by key (N) and to a
// picture of the fleet (O), lessons of other limits for services (P), of other elections and job lockers (J) and of other idempotency libraries (I), what a duplicate can get that the first caller did not (D), what a command under
// a lock can outlive (R), what can reach a console (C), what attacks on a finished version have found (A), how an attempt can end (Q), what an operator of requests can get wrong (U), what a second review of idempotency has found (V), what a member that hangs, and what avoids it, can do (M), what the command and its schedules can get wrong (B), and what schedules, plans and clocks of jobs can get wrong (K). Numbers that are left out belong to packages and modes that
// do not exist yet.
func requiredIDs() []string {
	var ids []string
	add := func(kind, format string, first, last int, except ...int) {
		for n := first; n <= last; n++ {
			if !slices.Contains(except, n) {
				ids = append(ids, fmt.Sprintf(kind+format, n))
			}
		}
	}
	add("T", "%d", 1, 37)
	add("F", "%02d", 1, 48)
	add("F", "%02d", 65, 68)
	add("S", "%d", 1, 11)
	add("L", "%d", 1, 10, 2)
	add("W", "%d", 1, 22)
	add("H", "%d", 1, 3)
	add("N", "%d", 1, 16)
	add("O", "%d", 1, 6)
	add("P", "%d", 1, 17)
	add("J", "%d", 1, 28)
	add("I", "%02d", 1, 42)
	add("D", "%d", 1, 26)
	add("R", "%d", 1, 7)
	add("Q", "%d", 1, 20)
	add("C", "%d", 1, 2)
	add("A", "%d", 1, 120)
	add("A", "%d", 131, 150)
	add("A", "%d", 165, 187)
	add("A", "%d", 189, 206)
	add("A", "%d", 211, 215)
	add("A", "%d", 217, 235)
	add("A", "%d", 242, 248)
	add("A", "%d", 250, 253)
	add("A", "%d", 256, 280)
	add("A", "%d", 283, 289)
	add("A", "%d", 293, 293)
	add("A", "%d", 297, 313)
	add("A", "%d", 316, 321)
	add("A", "%d", 326, 331)
	add("A", "%d", 336, 340)
	add("A", "%d", 346, 353)
	add("A", "%d", 356, 364)
	add("A", "%d", 366, 369)
	add("A", "%d", 371, 388)
	add("A", "%d", 390, 397)
	add("A", "%d", 400, 428)
	add("A", "%d", 430, 438)
	add("A", "%d", 440, 487)
	add("A", "%d", 489, 505)
	add("A", "%d", 510, 518)
	add("A", "%d", 520, 524)
	add("A", "%d", 530, 535)
	add("A", "%d", 540, 541)
	add("A", "%d", 550, 555)
	add("A", "%d", 560, 564)
	add("A", "%d", 571, 575)
	add("A", "%d", 580, 586)
	add("A", "%d", 590, 595)
	add("A", "%d", 600, 607)
	add("A", "%d", 610, 613)
	add("A", "%d", 620, 623)
	add("A", "%d", 630, 635)
	add("A", "%d", 638, 638)
	add("A", "%d", 640, 643)
	add("A", "%d", 645, 666)
	add("A", "%d", 668, 668)
	add("A", "%d", 675, 679)
	add("A", "%d", 685, 690)
	add("A", "%d", 697, 697)
	add("A", "%d", 700, 706)
	add("A", "%d", 710, 724)
	add("A", "%d", 730, 731)
	add("A", "%d", 733, 735)
	add("A", "%d", 740, 756)
	add("A", "%d", 760, 764)
	add("A", "%d", 768, 770)
	add("A", "%d", 775, 775)
	add("A", "%d", 780, 785)
	add("A", "%d", 796, 797)
	add("A", "%d", 806, 807)
	add("A", "%d", 816, 816)
	add("A", "%d", 826, 829)
	add("U", "%d", 1, 11)
	add("V", "%d", 1, 14)
	add("V", "%d", 21, 33)
	add("M", "%d", 1, 18)
	add("B", "%d", 1, 34)
	add("K", "%d", 1, 32)
	add("K", "%d", 46, 52)
	add("K", "%d", 60, 64)
	return ids
}

// idBreaches compares the table with the required ids and with the tests that
// exist.
func idBreaches(doc string, tests map[string]bool) []string {
	var found []string
	breach := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	required, seen := requiredIDs(), map[string]int{}
	for _, row := range idRow.FindAllStringSubmatch(doc, -1) {
		id, test, what := row[1], strings.TrimSpace(row[2]), strings.TrimSpace(row[3])
		seen[id]++
		if !slices.Contains(required, id) {
			breach("%s is not in the list of required ids", id)
		}
		if what == "" {
			breach("%s does not say what must hold", id)
		}
		switch {
		case idReasons.MatchString(test):
		default:
			for name := range strings.SplitSeq(test, ", ") {
				m := idTest.FindStringSubmatch(name)
				if m == nil {
					breach("%s: %q is neither `package.TestName`, nor \"waits for …: reason\" nor \"cannot run here: reason\"", id, name)
				} else if !tests[m[1]+"."+m[2]] {
					breach("%s: there is no test %s.%s", id, m[1], m[2])
				}
			}
		}
	}
	for _, id := range required {
		if seen[id] != 1 {
			breach("%s has %d rows, want one", id, seen[id])
		}
	}
	return found
}

// testFuncs returns the names of all test functions, as package.Name.
func testFuncs(tr *tree) map[string]bool {
	names := map[string]bool{}
	for _, f := range tr.files {
		if !strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil {
				names[f.pkg()+"."+d.Name.Name] = true
			}
		}
	}
	return names
}

// allTests are the tests of this module, of integration and of bench, by which documents name them.
func allTests(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, tr := range modules(t) {
		maps.Copy(names, testFuncs(tr))
	}
	return names
}

// TestIDs holds internal/proof/tested-failures.md to the tests that exist, and no other page has rows
// of failures: they would be checked by nothing.
func TestIDs(t *testing.T) {
	const list = "internal/proof/tested-failures.md"
	for name, doc := range pages(t) {
		switch {
		case name == list:
			for _, breach := range idBreaches(doc, allTests(t)) {
				t.Errorf("%s: %s", name, breach)
			}
		case idRow.MatchString(doc):
			t.Errorf("%s: %q belongs into %s", name, idRow.FindString(doc), list)
		}
	}
}

// Each mutant names a row of the list, or a rule that no row has (M and E).
func TestIDsOfMutants(t *testing.T) {
	edits, err := filepath.Glob("../mutants/edits/*.txt")
	if err != nil || len(edits) == 0 {
		t.Fatal(len(edits), err)
	}
	for _, name := range edits {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if breach := mutantBreach(string(text)); breach != "" {
			t.Errorf("%s: %s", filepath.Base(name), breach)
		}
	}
	for text, fine := range map[string]bool{
		"Rule: r\nId: T1\nTest: ./x TestX\n": true, "Rule: r\nId: M12\n": true, "Rule: r\nId: E3\n": true,
		"Rule: r\nId: T99\n": false, "Rule: r\nId: m1\n": false, "Rule: r\n": false, "Rule: Id: T1\n": false,
	} {
		if breach := mutantBreach(text); fine != (breach == "") {
			t.Errorf("%q: %q", text, breach)
		}
	}
}

// ownID is that of a rule that no row has.
var ownID = regexp.MustCompile(`^[ME]\d+$`)

func mutantBreach(text string) string {
	_, id, _ := strings.Cut(text, "\nId: ")
	id, _, _ = strings.Cut(id, "\n")
	if ownID.MatchString(id) || slices.Contains(requiredIDs(), id) {
		return ""
	}
	return fmt.Sprintf("no row of internal/proof/tested-failures.md has the Id %q", id)
}

// TestIDsFail shows that a wrong list is found out.
func TestIDsFail(t *testing.T) {
	tests := testFuncs(planted(t, map[string]string{
		"internal/queue/queue_test.go": "package queue_test\nfunc TestFront() {}\nfunc (x) TestMethod() {}\n",
		"internal/queue/queue.go":      "package queue\nfunc TestNot() {}\n",
	}))
	good := ""
	for _, id := range requiredIDs() {
		good += "| " + id + " | `queue.TestFront/sub`, `queue.TestFront` | it holds |\n"
	}
	if got := idBreaches(good, tests); len(got) != 0 {
		t.Fatalf("a good list is refused: %q", got)
	}

	replaceT1 := func(row string) string {
		_, rest, _ := strings.Cut(good, "\n")
		return row + rest
	}
	lists := map[string]struct{ doc, want string }{
		"missing":     {replaceT1(""), "T1 has 0 rows"},
		"twice":       {good + "| T1 | TODO | it holds |\n", "T1 has 2 rows"},
		"unknown":     {good + "| S12 | `queue.TestFront` | it holds |\n", "S12 is not in the list"},
		"no such":     {replaceT1("| T1 | `queue.TestBack` | it holds |\n"), "no test queue.TestBack"},
		"method":      {replaceT1("| T1 | `queue.TestMethod` | it holds |\n"), "no test queue.TestMethod"},
		"not a test":  {replaceT1("| T1 | `queue.TestNot` | it holds |\n"), "no test queue.TestNot"},
		"no reason":   {replaceT1("| T1 | waits for schedlock: | it holds |\n"), "neither"},
		"no sentence": {replaceT1("| T1 | `queue.TestFront` | |\n"), "does not say"},
		"todo":        {replaceT1("| T1 | TODO | it holds |\n"), "neither"},
	}
	for name, tt := range lists {
		t.Run(name, func(t *testing.T) {
			got := idBreaches(tt.doc, tests)
			if !slices.ContainsFunc(got, func(b string) bool { return strings.Contains(b, tt.want) }) {
				t.Errorf("breaches %q, want one: %s", got, tt.want)
			}
		})
	}

	excused := replaceT1("| T1 | waits for schedlock: its claims | it holds |\n")
	if got := idBreaches(excused, tests); len(got) != 0 {
		t.Errorf("a row with a reason is refused: %q", got)
	}
}
