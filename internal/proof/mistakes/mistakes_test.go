package mistakes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var update = flag.Bool("update", false, "write the texts into testdata/mistakes.golden")

const golden = "testdata/mistakes.golden"

func TestMain(m *testing.M) { embedtest.Main(m) }

// mistake is one mistake of a new user.
type mistake struct {
	title string // what the user did
	call  string // the call that fails
	make  func(f *fixture) error

	// What the text must have, in the product's words: it begins with what was attempted,
	// and it names the thing and what the user has to change.
	attempt, name, change string
}

// unclear are words that leave open which process or caller is meant.
var unclear = regexp.MustCompile(`(?i)\b(somebody|nobody|whoever|tells?|told|he|his|him)\b`)

// changing are texts that differ between runs or machines.
var changing = []struct{ pattern, with string }{
	{`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"},
	{`/embedtest-[^/\s"]+`, "/PREFIX"},
	{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`, "TIME"},
	{`\S+ in the future`, "DURATION in the future"},
}

// plain returns an error's text without what differs between runs.
func plain(err error, prefix string) string {
	text := err.Error()
	if prefix != "" {
		text = strings.ReplaceAll(text, prefix, "/PREFIX")
	}
	for _, c := range changing {
		text = regexp.MustCompile(c.pattern).ReplaceAllString(text, c.with)
	}
	return text
}

// TestMistakes: each mistake is answered with what was attempted, the name, and what to change.
func TestMistakes(t *testing.T) {
	f := newFixture(t)
	page := "What a new user reads after a mistake.\nWritten by: go test ./internal/proof/mistakes -update\n"
	for _, m := range mistakes {
		err := m.make(f)
		if err == nil {
			t.Errorf("%s: %s does not fail", m.title, m.call)
			continue
		}
		text := plain(err, f.prefix)
		page += fmt.Sprintf("\n%s\n\t%s\n\t→ %s\n", m.title, m.call, strings.ReplaceAll(text, "\n", "\n\t  "))
		if !strings.HasPrefix(text, m.attempt) {
			t.Errorf("%s: the text does not begin with %q: %s", m.title, m.attempt, text)
		}
		if strings.Contains(text, "%!") || unclear.MatchString(text) {
			t.Errorf("%s: the text leaves open what it means: %s", m.title, text)
		}
		for _, part := range []string{m.name, m.change} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the text does not contain %q: %s", m.title, part, text)
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(page), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), page, "run: go test ./internal/proof/mistakes -update, and read the difference")
}

// soon returns a ctx that ends before long, and not before a busy machine has connected.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(testkit.Context(t), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}
