package deptest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// A way is how the calls of one kind are run: exactly one of its fields is set.
type way struct {
	test string // the package and the test that runs them, or what they start
	step string // of the gate
	part string // of make verify
	none string // nothing runs them: why
}

// ways are those of the calls that no page's own test types: of make, go and docker, of the programs that a transcript
// shows, and of the calls within the text of a page.
var ways = map[string]way{
	"make":                 {test: "internal/proof/pagerun TestMake"},
	"make demo":            {test: "examples/fleet TestReadmeTranscript"},
	"make demo-cron":       {test: "demos/cron TestReadme"},
	"make demo-payments":   {test: "demos/payments TestReadme"},
	"make demo-limits":     {test: "demos/pods TestReadme"},
	"make demo-console":    {test: "examples/console TestShop"},
	"make test":            {step: "test"},
	"make race":            {step: "race"},
	"make etcd37":          {step: "etcd37"},
	"make integration":     {step: "integration"},
	"make bench-test":      {step: "bench-test"},
	"make demos-test":      {step: "demos-test"},
	"make browser":         {part: "browser"},
	"make alerts-day":      {part: "alerts-day"},
	"make first-output":    {part: "first-output"},
	"make stall":           {part: "stall"},
	"make chaos":           {part: "chaos"},
	"make chaos-processes": {part: "chaos-processes"},
	"make runbook":         {part: "runbook"},
	"make seeds":           {part: "seeds"},
	"make mutants":         {part: "mutants"},
	"make compat":          {part: "compat"},
	"make model":           {part: "model"},
	"make fuzz":            {part: "fuzz"},
	"make chaos-replay":    {test: "internal/proof/check/replay TestReplay"},
	"make cli-docs":        {test: "cmd/etcdkit/internal/cli TestReference"},
	"make etcd37-sync":     {test: "internal/proof/deptest TestETCD37"},
	"make outage":          {test: "concurrency/limithttp TestAway"},
	"make slowest":         {test: "internal/proof/gate TestEach"},
	"make bench":           {test: "bench TestFromCellsToPage"},
	"make bench-scale":     {test: "bench TestFromCellsToPage"},
	"make bench-docs":      {test: "bench TestFromCellsToPage"},
	"make bench-page":      {test: "bench TestFromCellsToPage"},
	"make scaling":         {test: "bench TestScalingIsMeasured"},
	"make soak":            {test: "internal/proof/soak TestRealEtcd"},
	"make verify":          {none: "hours: its parts are here"},
	"make microbench":      {none: "it measures; the gate compiles the benchmarks"},
	"make hung":            {none: "it measures, five minutes"},
	"make referee":         {none: "it measures, ten minutes"},
	"make night":           {test: "internal/proof/night TestFirstSteps"},
	"make lint":            {none: "it downloads staticcheck"},
	"make release-check":   {part: "release-check"},
	"make fmt":             {none: "it changes files: gofmt -s -w"},

	"go run ./examples/quickstart/semaphore": {test: "examples/quickstart/semaphore Example"},
	"go run ./examples/quickstart/leader":    {test: "examples/quickstart/leader TestOneLeads"},
	"go run ./cmd/etcdkit-dev":               {test: "cmd/etcdkit-dev TestTemporary"},
	"go run -C demos ./pods":                 {test: "demos/pods TestPods"},
	"go run -C demos ./fair-users":           {test: "demos/fair-users TestFairUsers"},
	"go run ./compat":                        {part: "compat"},
	"go build":                               {test: "examples/quickstart/shell TestPage"},
	"go install":                             {test: "examples/quickstart/shell TestPage"},
	"go mod":                                 {test: "examples/quickstart/first TestFirstOutput"},
	"go doc":                                 {test: "internal/proof/pagerun TestGoDoc"},
	"go env":                                 {test: "internal/proof/pagerun TestGoDoc"},
	"go get":                                 {step: "etcd37"}, // of the versions that this step tests
	"go test":                                {step: "test"},
	"go test -bench":                         {none: "a benchmark, which the gate compiles"},
	"docker compose":                         {none: "it needs docker and its images"},
	"docs/model/run":                         {part: "model"},
	"bin/pods":                               {test: "demos/pods TestReadme"},
	"bin/fair-users":                         {test: "demos/fair-users TestReadme"},

	"etcdkit":                           {test: "cmd/etcdkit/internal/cli TestPagesSpans"},
	"etcdctl endpoint health --cluster": {test: "internal/proof/pagerun TestEtcdctl"},
	"etcdctl alarm list":                {test: "internal/proof/pagerun TestEtcdctl"},
	"etcdctl lease revoke lease":        {test: "internal/proof/pagerun TestEtcdctl"},
	"etcdctl lock":                      {none: "a name: it lacks the lock"},
	"go build -overlay":                 {none: "a name: it lacks the file"},
}

// kinds returns the keys of ways for a call; none if a page's own test types it, or it is of the shell.
func kinds(call pagecode.Call) (all []string) {
	program, args := call.Words[0], call.Words[1:]
	switch {
	case program == "make":
		for _, arg := range args {
			if variable.FindStringSubmatch(arg) == nil {
				all = append(all, "make "+arg)
			}
		}
		if len(args) == 0 {
			all = append(all, "make")
		}
	case program == "go" && call.Span && len(args) == 1:
		// The name of a verb.
	case program == "go" && args[0] == "run":
		end := 1 + slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "./") })
		all = append(all, "go "+strings.Join(args[:end], " "))
	case program == "go" && args[0] == "test" && slices.Contains(args, "-bench"):
		all = append(all, "go test -bench")
	case program == "go" && call.Span && args[0] == "build":
		all = append(all, strings.Join(call.Words, " "))
	case program == "go", program == "docker":
		all = append(all, program+" "+args[0])
	case call.Span && (program == "etcdctl" || program == "etcdutl"):
		all = append(all, strings.Join(call.Words, " "))
	case call.Span && program == "etcdkit", program == "docs/model/run", strings.HasPrefix(program, "bin/"):
		all = append(all, program)
	}
	return all
}

// wayless are the calls of a page that no way has. It counts those of each way in used.
func wayless(name, page string, list map[string]way, used map[string]int) (found []string) {
	for _, call := range pagecode.Parse(page).Calls() {
		for _, kind := range kinds(call) {
			if used[kind]++; list[kind] == (way{}) {
				found = append(found, fmt.Sprintf("%s:%d: nothing says what runs %q: add it to ways", name, call.Line, kind))
			}
		}
	}
	return found
}

// check reports a way that does not exist: a test, a step of the gate's plan, or a part of make verify.
func (w way) check(all *catalog, plan, parts string) error {
	dir, name, _ := strings.Cut(w.test, " ")
	switch {
	case w.test != "":
		return all.test([]string{"./" + dir, "-run", "^" + name + "$"}, "")
	case w.step != "" && !regexp.MustCompile(`(?:chosen\(|target: )"`+w.step+`"`).MatchString(plan):
		return fmt.Errorf("the gate has no step %s", w.step)
	case w.part != "" && !slices.Contains(strings.Fields(parts), w.part):
		return fmt.Errorf("make verify has no part %s", w.part)
	case w == way{}:
		return fmt.Errorf("it has no way")
	}
	return nil
}

// Each call that a page shows is run: by a test, by a step of the gate or a part of make verify; or the list says why not.
func TestPagesWays(t *testing.T) {
	all, used := newCatalog(t), map[string]int{}
	for name, page := range pages(t) {
		if within(name, "docs/design") {
			continue // what was tried then
		}
		for _, breach := range wayless(name, page, ways, used) {
			t.Error(breach)
		}
	}
	plan, err := os.ReadFile("../gate/plan.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`(?m)^PARTS *\?= (.*)$`).FindStringSubmatch(all.makefile)
	if parts == nil {
		t.Fatal("the Makefile has no PARTS")
	}
	calls := map[string]int{}
	for _, kind := range slices.Sorted(maps.Keys(ways)) {
		w := ways[kind]
		if err := w.check(all, string(plan), parts[1]); err != nil || used[kind] == 0 {
			t.Errorf("%s: used %d times, %v", kind, used[kind], err)
		}
		switch {
		case w.test != "":
			calls["tests"] += used[kind]
		case w.step != "":
			calls["steps of the gate"] += used[kind]
		case w.part != "":
			calls["parts of make verify"] += used[kind]
		default:
			calls["nothing"] += used[kind]
			t.Logf("nothing runs the %d calls of %s: %s", used[kind], kind, w.none)
		}
	}
	t.Logf("calls by what runs them: %v", calls)
}

// A call without a way is found out, and a way that does not exist.
func TestPagesWaysFail(t *testing.T) {
	list := map[string]way{"make demo": {step: "x"}, "make": {none: "x"}, "go run -C demos ./a": {none: "x"}, "go test": {none: "x"}, "etcdkit": {none: "x"}, "bin/a": {none: "x"}}
	for page, breaches := range map[string]int{
		"    make demo ARGS=-x\n    make\n": 0, "`make demo test`\n": 1, "    go run -C demos ./a -b ./c\n": 0, "    go run ./a\n": 1, "`go get` and `go test`\n": 0,
		"    go test ./a -bench B\n": 1, "`go test ./a`\n": 0, "    etcdkit ls\n": 0, "`etcdkit ls`, `etcdctl get a`\n": 1, "    cd a && docker compose up\n": 1,
		"```text\n$ bin/a\n$ bin/b\n```\n": 1, "    docs/model/run A\n": 1,
	} {
		if got := wayless("a.md", page, list, map[string]int{}); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", page, got, breaches)
		}
	}
	all := &catalog{modules: map[string]*tree{"": planted(t, map[string]string{"a/a_test.go": "package a\n\nfunc TestA() {}\n"})}}
	for w, fine := range map[way]bool{
		{test: "a TestA"}: true, {test: "a TestB"}: false, {test: "b TestA"}: false, {step: "race"}: true, {step: "rac"}: false,
		{part: "fuzz"}: true, {part: "fuz"}: false, {none: "x"}: true, {}: false,
	} {
		if err := w.check(all, `chosen("race", "-short")`, "fuzz model"); fine != (err == nil) {
			t.Errorf("%+v: %v", w, err)
		}
	}
}
