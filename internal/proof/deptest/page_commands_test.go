package deptest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

func newCatalog(t *testing.T) *catalog {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	c := &catalog{makefile: read("../../../Makefile"), root: os.DirFS("../../.."), modules: modules(t), versions: goMod(t, "../../../.ci/etcd37.mod").direct()}
	version, verbs := etcdVerbs(read("testdata/etcdctl.txt"))
	if !strings.Contains(c.makefile, "\nETCDCTL     := "+version+"\n") {
		t.Errorf("testdata/etcdctl.txt has the verbs of %s, and the Makefile builds another etcdctl: its second line says how to write it again", version)
	}
	c.verbs = verbs
	return c
}

// Each command on each page names what there is. Programs of others are in a list.
func TestPagesCommands(t *testing.T) {
	catalog, calls := newCatalog(t), map[string]int{}
	for name, page := range pages(t) {
		for _, call := range pagecode.Parse(page).Calls() {
			calls[call.Words[0]]++
			if err := catalog.typed(call); err != nil {
				t.Errorf("%s:%d: %s: %v", name, call.Line, strings.Join(call.Words, " "), err)
			}
		}
	}
	for program := range otherPrograms {
		if calls[program] == 0 {
			t.Errorf("no page calls %s: take it from the list", program)
		}
	}
	t.Logf("calls by program: %v", calls)
}

// A command that names what there is not is found out.
func TestPagesCommandsFail(t *testing.T) {
	main := "package main\n\nfunc main() { flag.IntVar(&limit, \"limit\", 3, \"limit\"); flag.Bool(\"fast\", false, \"fast\"); zap.String(\"no-flag\", \"x\") }\n"
	catalog := &catalog{
		makefile: "ARGS ?=\n\n.PHONY: demo\ndemo: ## Run it\n\t@go build -o bin/fleet ./examples/fleet\n\t@bin/fleet $(ARGS)\n\nlint:\n\t@go vet\n",
		root:     fstest.MapFS{"compose.yaml": &fstest.MapFile{}, "docs/model/run": &fstest.MapFile{}},
		modules: map[string]*tree{
			"": planted(t, map[string]string{
				"examples/fleet/main.go": main, "concurrency/a.go": "package concurrency\n\ntype S struct{}\n\nfunc (s *S) Do() {}\n\nfunc New() {}\n",
				"concurrency/a_test.go": "package concurrency\n\nfunc TestA() {}\n", "cmd/etcdkit-dev/main.go": main,
				"internal/examples/metrics/m.go": "package metrics\n\nfunc f() { f.StringVar(addr, \"metrics\", \"\", \"address\") }\n",
			}),
			"demos/": planted(t, map[string]string{"cron/main.go": main}),
		},
		versions: map[string]string{"example.org/a": "v1.2.3"},
		verbs:    map[string][]string{"etcdctl get": {"--prefix", "--endpoints"}, "etcdctl role add": {}},
	}
	for line, fine := range map[string]bool{
		"make demo ARGS=\"-limit 3 -metrics :1\"": true, "make": true, "make lint demo": true, "make demos": false, "make demo ARG=1": false, "make demo ARGS=-limits": false,
		"make demo ARGS=-no-flag": false,
		"go run ./examples/fleet": true, "go run ./examples/fleet -limit=3 -fast": true, "go run ./examples/flat": false, "go run ./examples/fleet -slow": false,
		"go run ./concurrency": false, "go run -C demos ./cron -limit 3": true, "go run -C demos ./pods": false,
		"go test ./concurrency -run A": true, "go test -v ./concurrency": true, "go test ./concurrency -run B": false, "go test ./concurrency -run ^$ -bench A": true, "go test ./concurrency -run ^$ -bench B": false, "go test ./nowhere": false,
		"go doc concurrency": true, "go doc concurrency.New": true, "go doc x/y/concurrency.S.Do": true, "go doc concurrency.S.Stop": false, "go doc semaphore": false,
		"go install " + module + "/examples/fleet@latest": true, "go install " + module + "/concurrency@latest": false, "go install example.org/a@latest": false,
		"go get example.org/a@v1.2.3": true, "go get example.org/a@v1.2.4": false, "go install ./examples/fleet": true, "go install ./concurrency": false, "go mod tidy": true, "go fly": false, "go": false,
		"etcdkit-dev -limit 3": true, "etcdkit-dev -port 1": false,
		"etcdctl get --prefix /a": true, "etcdctl get --endpoints=a b": true, "etcdctl role add app": true, "etcdctl get --prefixes /a": false, "etcdctl role": false, "etcdctl got a": false,
		"docker compose -f compose.yaml up": true, "docker compose -f other.yaml up": false, "docker run x": false,
		"docs/model/run": true, "bin/fleet": true, "bin/float": false, "curl localhost": true, "wget localhost": false,
	} {
		calls := pagecode.Parse("```sh\n" + line + "\n```\n").Calls()
		if len(calls) != 1 {
			t.Fatalf("%q: %d calls", line, len(calls))
		}
		if err := catalog.typed(calls[0]); fine != (err == nil) {
			t.Errorf("%q: %v", line, err)
		}
	}
	if version, verbs := etcdVerbs("# v3.6.16\n# How.\netcdctl get: --b -w\n"); version != "v3.6.16" || len(verbs) != 2 || len(verbs["etcdctl get"]) != 2 {
		t.Errorf("%s %q", version, verbs)
	}
}
