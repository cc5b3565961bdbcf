package pagecode

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "# Page\n\nRun `etcdkit show -o json`, `x`, `make test`,\n    no code: it continues the paragraph.\n\n" +
	"    make demo ARGS=\"-limit 3\"   # three\n\n    make test\n\n```go\nx := 1\n\n```\n" +
	"```text\n$ etcdctl get a | cat\nvalue\n$ make\n```\n\n    time ──▶\n\n```sh\n    go run ./x\n```\n"

func TestBlocks(t *testing.T) {
	t.Parallel()
	p := Parse(page)
	require.Equal(t, []Block{
		{Line: 6, Text: "make demo ARGS=\"-limit 3\"   # three\n\nmake test\n"},
		{Line: 11, Lang: "go", Fenced: true, Text: "x := 1\n\n"},
		{Line: 15, Lang: "text", Fenced: true, Text: "$ etcdctl get a | cat\nvalue\n$ make\n"},
		{Line: 20, Text: "time ──▶\n"},
		{Line: 23, Lang: "sh", Fenced: true, Text: "    go run ./x\n"},
	}, p.Blocks)
	require.Equal(t, []Call{
		{Line: 6, Words: []string{"make", "demo", "ARGS=-limit 3"}},
		{Line: 8, Words: []string{"make", "test"}},
		{Line: 15, Words: []string{"etcdctl", "get", "a"}},
		{Line: 15, Words: []string{"cat"}},
		{Line: 17, Words: []string{"make"}},
		{Line: 23, Words: []string{"go", "run", "./x"}},
		{Line: 3, Words: []string{"etcdkit", "show", "-o", "json"}, Span: true},
		{Line: 3, Words: []string{"make", "test"}, Span: true},
	}, p.Calls())
	require.Equal(t, "time ──▶", p.Blocks[3].Title())
}

// A script has these calls, each with the line on which it begins.
func TestScript(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"a b":                                  {"1 a b"},
		"A=1 B='x y' a --c=\"d e\" 'f g'":      {"1 a --c=d e f g"},
		"a \\\n\tb\nc":                         {"1 a b", "3 c"},
		"a > f 2>&1 < g; b && c || d &":        {"1 a", "1 b", "1 c", "1 d"},
		"# a\nb # c\nd#e":                      {"2 b", "3 d#e"},
		"for n in 1 2; do\n\ta $n\ndone":       {"2 a $n"},
		"until a b; do sleep 1; done":          {"1 a b", "1 sleep 1"},
		"f() { a \"$1\"; }\nb":                 {"1 a $1", "2 b"},
		"a \"$(b c)\" $(d)":                    {"1 b c", "1 d", "1 a $(…) $(…)"},
		"a <(b c)":                             {"1 b c", "1 a /dev/fd"},
		"a > f <<-END\n\tmake nothing\nEND\nb": {"1 a", "4 b"},
		"ssh m1 sudo systemctl stop etcd":      {"1 ssh m1", "1 systemctl stop etcd"},
		"ssh m1 \"a 'b c' | sudo d\"":          {"1 ssh m1", "1 a b c", "1 d"},
		"export A=1\na":                        {"2 a"},
		"(cd x && a)":                          {"1 cd x", "1 a"},
		"":                                     nil,
	} {
		var got []string
		calls, _ := script(text, 1)
		for _, c := range calls {
			got = append(got, fmt.Sprintf("%d %s", c.Line, strings.Join(c.Words, " ")))
		}
		require.Equal(t, want, got, "%q", text)
	}
}

// The longest script of the pages is read to its end: bash has no complaint about it either.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/runbook.md")
	require.NoError(t, err)
	programs := map[string]int{}
	for _, c := range Parse(string(text)).Calls() {
		programs[c.Words[0]]++
	}
	require.Greater(t, programs["etcdctl"], 20, programs)
	require.NotContains(t, programs, "sign", "it is a function")
	require.NotContains(t, programs, "name:", "it is part of a document")
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, b := range Parse(string(text)).Blocks {
		if b.Shell() {
			check := exec.CommandContext(t.Context(), bash, "-n")
			check.Stdin = strings.NewReader(b.Text)
			out, err := check.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	b := Parse("```text\n$ a b\none\n\ntwo\n$ c \\\n  d\nthree\n$ e\n```\n").Blocks[0]
	require.Equal(t, []Step{{2, "a b", "one\n\ntwo\n"}, {6, "c \\\n  d", "three\n"}, {9, "e", ""}}, b.Steps())
	require.Empty(t, Block{Text: "a\nb\n"}.Steps())
}

// What is shown is compared with what is printed, but for what the page leaves open.
func TestShows(t *testing.T) {
	t.Parallel()
	for shown, fine := range map[string]bool{
		"a  b (c)\nd\n": true, "a b (…)\nd\n": true, "a …\n…\n": true, "…\n": true, "…\nd\n": true, "…b (c)\nd\n": true,
		"": false, "a b (c)\n": false, "a b (c)\nd\ne\n": false, "a b c\nd\n": false, "d\na b (c)\n": false, "a …b\nd\n": false, "a b (c)\n…\nd\nd\n": false,
	} {
		require.Equal(t, fine, Shows(shown, "a b\t(c)\nd\n"), "%q", shown)
	}
	require.True(t, Shows("", ""))
	require.True(t, Shows("…\n", ""))
}
