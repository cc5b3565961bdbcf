package deptest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// maxProgram is the number of lines, as wc -l counts them, that a program to copy from
// stays below: it fits on a screen.
const maxProgram = 60

// tasks are the programs for what a newcomer sets out to do, beside those of quickstart.
var tasks = map[string]string{
	"a partner's API under a limit":         "examples/quickstart/partner/main.go",
	"one leader that stops cleanly":         "examples/quickstart/leader/main.go",
	"a limited worker with a graceful stop": "examples/quickstart/worker/main.go",
	"a nightly job under robfig/cron":       "integration/example_robfig_test.go",
	"a nightly job under gocron":            "integration/example_gocron_test.go",
	"payments by a provider with keys":      "examples/quickstart/charge/main.go",
	"payments on chi, with a crash":         "integration/example_chi_test.go",
	"a unit test in which a permit is lost": "examples/quickstart/testing/thumbs_test.go",
	"a unit test in which etcd is away":     "examples/quickstart/testing/outage_test.go",
	"an operator's evening":                 "examples/quickstart/operator/main.go",
}

// opens reports whether a program of the quickstart, which has -metrics, opens a session of its own. The program of
// README.md has no flags.
func opens(source []byte) bool {
	return bytes.Contains(source, []byte("concurrency.NewSession(")) && bytes.Contains(source, []byte("program.Main"))
}

func programBreaches(root fs.FS) (found []string, err error) {
	programs, err := fs.Glob(root, "examples/quickstart/*/main.go")
	if err != nil {
		return nil, err
	}
	for _, name := range tasks {
		if !slices.Contains(programs, name) {
			programs = append(programs, name)
		}
	}
	index, err := fs.ReadFile(root, "examples/quickstart/README.md")
	if err != nil {
		return nil, err
	}
	slices.Sort(programs)
	for _, name := range programs {
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		if n := bytes.Count(source, []byte("\n")); n >= maxProgram {
			found = append(found, fmt.Sprintf("%s has %d lines, not below %d: move what it does not show to a file beside it", name, n, maxProgram))
		}
		if opens(source) && !bytes.Contains(source, []byte("Hooks: program.Hooks(")) {
			found = append(found, name+" opens a session without program.Hooks: -metrics does not serve what it reports")
		}
		link := "](" + strings.Replace("../../"+name, "../../examples/quickstart/", "", 1) + ")"
		if !bytes.Contains(index, []byte(link)) {
			found = append(found, "examples/quickstart/README.md has no link to "+name)
		}
	}
	return found, nil
}

// TestQuickstart holds the programs to copy from to a size that is read at once, to hooks, and their
// index to all of them.
func TestQuickstart(t *testing.T) {
	found, err := programBreaches(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range found {
		t.Error(breach)
	}
}

// TestQuickstartFails shows that a long program, one that the index leaves out, and one without hooks are
// found out.
func TestQuickstartFails(t *testing.T) {
	index := ""
	root := fstest.MapFS{}
	for _, name := range tasks {
		root[name] = &fstest.MapFile{Data: []byte(strings.Repeat("\n", maxProgram-1))}
		index += "[x](" + strings.Replace("../../"+name, "../../examples/quickstart/", "", 1) + ")\n"
	}
	root["examples/quickstart/README.md"] = &fstest.MapFile{Data: []byte(index)}
	for _, breaches := range []int{0, 3} {
		got, err := programBreaches(root)
		if err != nil || len(got) != breaches {
			t.Errorf("%q, %v; want %d breaches", got, err, breaches)
		}
		root["examples/quickstart/new/main.go"] = &fstest.MapFile{Data: []byte("program.Main(concurrency.NewSession()" + strings.Repeat("\n", maxProgram))}
	}
}

// ratesOfThePartner are the numbers of the partner's rate, in the commands and in the program.
var ratesOfThePartner = regexp.MustCompile(`(?:rate/partner |quota := concurrency\.Rate\{PerSecond: )(\d+)(?: --burst |, Burst: )(\d+)`)

// aboveQuota returns the rates of a text by which more calls can begin in a second than the partner's quota allows. A rate
// admits its burst besides.
func aboveQuota(text string, quota int) (found []string, rates int) {
	all := ratesOfThePartner.FindAllStringSubmatch(text, -1)
	for _, m := range all {
		perSecond, _ := strconv.Atoi(m[1])
		burst, _ := strconv.Atoi(m[2])
		if perSecond+burst > quota {
			found = append(found, m[0])
		}
	}
	return found, len(all)
}

// A499: the numbers of the program for a partner, and those that its page sets, keep the quota of 50 in any second.
func TestQuotaOfThePartner(t *testing.T) {
	for name, want := range map[string]int{"docs/limits.md": 1, "examples/quickstart/partner/client.go": 2} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if found, rates := aboveQuota(string(text), 50); len(found) > 0 || rates != want {
			t.Errorf("%s: above 50 in a second: %q; %d rates, want %d", name, found, rates, want)
		}
	}
	if found, _ := aboveQuota("etcdkit limit rate/partner 50 --burst 10", 50); len(found) != 1 {
		t.Errorf("%q, want one", found)
	}
}
