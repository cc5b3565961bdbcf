package cli_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// fragments are the calls within the text of pages that have arguments and are no whole commands: what they lack is
// said beside them.
var fragments = map[string]string{
	"requests resolve -N NAMESPACE STORE REF": "with the flags that the page lists behind it",
}

// ranElsewhere are the calls within the text that a test of their own runs, as their scenes are larger: its file and name.
var ranElsewhere = map[string]string{
	"conformance": "trial/conformance_test.go TestConformance",
	"cron FILE":   "cron/cron_linux_test.go TestCronRunsALineOnce",
}

// standIns are what scenes have in place of what the text names, and of the words that a reader replaces.
var standIns = strings.NewReplacer(
	"semaphore/partner", "charge", "rate/partner", "rate/mail", "NAMESPACE", "test", "STORE", "orders", "REF", "c0535e4be2b79ffd/rE6fr...",
	"SCOPE", "tenant-7", "NAME", "nightly", "COMMAND", "true", "FILE", "/etc/etcdkit.crontab", "DIR", "/usr/local/share/man/man1", "VERB", "ls",
	"…", "127.0.0.1:2379", "TEXT", "cancelled", "data", "charge",
)

// typedAs returns what is typed for a call within the text: with stand-ins, and a namespace, which its reader has set.
func typedAs(words []string) []string {
	words = slices.Clone(words)
	for i, word := range words {
		words[i] = standIns.Replace(word)
		switch {
		case word == "OP":
			words[i] = "POST /orders"
		case words[i-min(i, 1)] == "--older-than":
			words[i] = "1ms" // the scene has just begun
		case word == "backup" && words[2] == "forget":
			words[i] = "invoices-2024"
		case word == "backup":
			words[i] = "invoices"
		}
	}
	if !slices.Contains(words, "-N") && !slices.Contains(words, "--help") {
		words = slices.Insert(words, 1+len(strings.Fields(verbOf(words))), "-N", "test")
	}
	return words
}

// spans returns the calls of the command within the text of all pages but the design notes, each once.
func spans(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	require.NoError(t, fs.WalkDir(os.DirFS("../../../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" || strings.HasPrefix(name, "bin/") || strings.HasPrefix(name, "docs/design/") {
			return nil
		}
		page, err := os.ReadFile("../../../../" + name)
		require.NoError(t, err)
		for _, call := range pagecode.Parse(string(page)).Calls() {
			if call.Span && call.Words[0] == "etcdkit" {
				all[strings.Join(call.Words[1:], " ")] = call.Words
			}
		}
		return nil
	}))
	return all
}

// Each call of the command within the text of a page does what a call in a block does: it ends well. A verb without the
// arguments that it needs is a name and no call; fragments and ranElsewhere have the others.
func TestPagesSpans(t *testing.T) {
	t.Parallel()
	all := spans(t)
	names := 0
	for text, words := range all {
		if fragments[text] != "" || ranElsewhere[text] != "" {
			continue
		}
		if !cli.Whole(words) {
			names++
			continue
		}
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			runCall(clitest.New(t), typedAs(words))
		})
	}
	for text := range maps.Keys(fragments) {
		require.Contains(t, all, text, "no page has the fragment")
	}
	for text, test := range ranElsewhere {
		require.Contains(t, all, text, "no page has the call")
		file, name, _ := strings.Cut(test, " ")
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(source), "func "+name+"(t *testing.T)")
	}
	t.Logf("%d calls within the text: %d are names of verbs, %d fragments, %d run in other tests, %d here", len(all), names, len(fragments), len(ranElsewhere),
		len(all)-names-len(fragments)-len(ranElsewhere))
}
