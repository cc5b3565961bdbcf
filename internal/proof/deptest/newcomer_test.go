package deptest

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// An answer is what a page has to say to a question that newcomers have had.
type answer struct{ question, page, text string }

// answers returns them for a version of etcd 3.7 that this repository is tested with.
func answers(etcd37 string) []answer {
	server := "go get go.etcd.io/etcd/server/v3@" + etcd37
	return []answer{
		{"why embedtest does not compile with the client of 3.7", "SUPPORT.md", server},
		{"why embedtest does not compile with the client of 3.7", "embedtest/doc.go", server},
		{"how to stop gracefully", "README.md", "sess.Close(closing)"},
		{"how to stop gracefully", "concurrency/session.go", "graceful stop is Close with a deadline"},
		{"how to stop gracefully", "concurrency/example_shutdown_test.go", "func ExampleSession_Close()"},
		{"how to charge a card once", "README.md", `ChildKey("charge")`},
		{"how to charge a card once", "README.md", "use `Refuse`"},
		{"one logger for etcd's client and the session", "README.md", "docs/options.md#one-logger-for-both"},
		{"one logger for etcd's client and the session", "docs/options.md", "## One logger for both"},
		{"one logger for etcd's client and the session", "concurrency/example_logger_test.go", "func ExampleSessionOptions_logger()"},
		{"when not to use this", "README.md", "Do not start one for this"},
		{"when not to use this", "README.md", "advisory locks"},
		{"when not to use this", "README.md", "riverqueue.com"},
		{"when not to use this", "README.md", "`leaderelection`"},
		{"when not to use this", "README.md", "use Redis"},
		{"when not to use this", "README.md", "Kubernetes control plane. Never"},
		{"limits that operators change", "README.md", "AdoptLimit: true"},
		{"which import the first program needs", "README.md", "\"github.com/etcdkit/etcdkit/concurrency\""},
		{"which import the first program needs", "concurrency/doc.go", "An editor that adds the import"},
		{"how to start without a release", "README.md", "go mod edit -replace"},
		{"what waits when a permit is kept", "README.md", "`Keep` and `Handover`"},
		{"limits that operators change", "README.md", "counts at once for running programs"},
		{"calls that a partner still works on", "docs/limits.md", "Send it with `context.WithoutCancel`"},
		{"calls that a partner still works on", "docs/limits.md", "two thirds of the TTL"},
		{"calls that a partner still works on", "docs/adopt.md", "limits.md#calls-to-a-partner"},
		{"what a crashed process's waiting requests take", "docs/limits.md", "those that wait get permits in their turn"},
		{"what a crashed process's waiting requests take", "docs/adopt.md", "[waiting requests](limits.md#which-numbers) get permits too"},
		{"a provider's quota per second", "docs/limits.md", "is `PerSecond` + `Burst`"},
		{"a nightly job when clocks change", "docs/adopt.md", "one night without a fire time"},
		{"where the command comes from", "README.md", "go install ./cmd/etcdkit"},
		{"where the command comes from", "docs/cli.md", "go install ./cmd/etcdkit"},
		{"main of a copied quickstart", "examples/quickstart/README.md", "sigterm, cancel := signal.NotifyContext"},
		{"a script once a night", "docs/adopt.md", "**Once a night on several machines**"},
		{"a script once a night", "docs/cli.md", "examples/quickstart/shell/README.md"},
		{"a whole program for each task", "README.md", "[to copy](examples/quickstart/README.md)"},
		{"a whole program for each task", "docs/limits.md", "[A program to copy](../examples/quickstart/partner/main.go)"},
		{"how a program is copied", "examples/quickstart/README.md", "Replace `func main` by this one"},
		{"limits that operators change", "docs/options.md", "`AdoptLimit`: set it wherever"},
		{"limits that operators change", "concurrency/semaphore_options.go", "if operators change the limit with SetLimit"},
		{"limits that operators change", "examples/quickstart/worker/main.go", "AdoptLimit: true"},
	}
}

// unanswered lists the answers that are not on their pages. Line ends and the marks of Go
// comments do not count.
func unanswered(root fs.FS, all []answer) (found []string) {
	for _, a := range all {
		page, err := fs.ReadFile(root, a.page)
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		if !strings.Contains(words(strings.ReplaceAll(string(page), "//", "")), words(a.text)) {
			found = append(found, fmt.Sprintf("%s does not say %q: newcomers have asked about %s", a.page, a.text, a.question))
		}
	}
	return found
}

// TestNewcomer holds the pages that newcomers read to the answers that they have missed
// there.
func TestNewcomer(t *testing.T) {
	version := goMod(t, "../../../.ci/etcd37.mod").direct()["go.etcd.io/etcd/server/v3"]
	for _, breach := range unanswered(os.DirFS("../../.."), answers(version)) {
		t.Error(breach)
	}
}

// TestNewcomerFails shows that a missing answer, and a missing page, are found out.
func TestNewcomerFails(t *testing.T) {
	root := fstest.MapFS{"a.go": &fstest.MapFile{Data: []byte("// Use this\n// for that.\n")}}
	got := unanswered(root, []answer{{"x", "a.go", "Use this for that."}, {"y", "a.go", "Not for that."}, {"z", "b.go", "Use"}})
	if len(got) != 2 {
		t.Errorf("breaches %q, want the missing answer and the missing page", got)
	}
}
