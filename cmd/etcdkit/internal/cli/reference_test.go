package cli

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const (
	pageOfCommand = "../../../../docs/cli.md"
	pageOfForms   = "testdata/json.md"
	pagesOfVerbs  = "../../../../bin/cli" // not checked in
)

// transcripts returns the golden files by their names.
func transcripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.golden")
	require.NoError(t, err)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".golden")] = string(text)
	}
	return all
}

// updating reports whether the pages are written, by the flag of the fixture, which the other tests here use.
func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// docs/cli.md is what the command says of itself, and the page of forms what its transcripts show.
func TestReference(t *testing.T) {
	for page, want := range map[string]string{pageOfCommand: index(tree()), pageOfForms: formsOf(transcripts(t))} {
		if updating() {
			require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
		}
		got, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "make cli-docs writes it again")
	}
}

// Each verb has a page, with its help, its flags and all of its transcripts; make cli-docs writes the pages.
func TestReferenceOfVerbs(t *testing.T) {
	all := transcripts(t)
	pages := reference(tree(), all)
	for _, verb := range verbsOf(tree()) {
		page := pages[slug(verb)+".md"]
		require.True(t, strings.HasPrefix(page, "# "+verb.CommandPath()+"\n"), page)
		for _, f := range flagsOf(verb.LocalNonPersistentFlags()) {
			require.Contains(t, page, "| `"+f.name+"` |", verb.CommandPath())
		}
	}
	shown := strings.Join(slices.Collect(maps.Values(pages)), "")
	for name, transcript := range all {
		for line := range strings.Lines(transcript) {
			if strings.HasPrefix(line, "$ etcdkit ") {
				require.Contains(t, shown, line, name)
			}
		}
	}
	if updating() {
		require.NoError(t, os.MkdirAll(pagesOfVerbs, 0o700))
		for name, page := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(pagesOfVerbs, name), []byte(page), 0o600))
		}
	}
}

// sources returns the files of the command: of this package and those of the verbs.
func sources(t *testing.T) []string {
	t.Helper()
	own, err := filepath.Glob("*.go")
	require.NoError(t, err)
	of, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	require.Greater(t, len(of), 40)
	return append(own, of...)
}

// Each form of JSON is in a transcript, and so on the page of forms, but for that of a file which run writes, and the first lines of
// verbs that serve until they are ended.
func TestEverySchemaIsDocumented(t *testing.T) {
	files := sources(t)
	shown := strings.Join(slices.Collect(maps.Values(transcripts(t))), "")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`FormOf\("([^"]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains([]string{"console", "export", "exit"}, m[1]) {
				require.True(t, strings.Contains(shown, `"etcdkit.`+m[1]+`/v1"`), "%s: no transcript has %s", file, m[0])
			}
		}
	}
}

// Each verb says what it does, has an example, and checks its arguments; each flag has a meaning.
func TestVerbsAreDocumented(t *testing.T) {
	flag := regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" {
			return // of cobra
		}
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.False(t, strings.HasSuffix(cmd.Short, "."), "%s: a title has no full stop", cmd.CommandPath())
		if cmd.HasParent() {
			require.NotEmpty(t, cmd.Example, "%s has no example", cmd.CommandPath())
			require.NotNil(t, cmd.Args, "%s does not check its arguments", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			own, _, _ := strings.Cut(line, " -- ")
			require.Contains(t, own, "etcdkit ", "an example of %s is no call", cmd.CommandPath())
			for _, m := range flag.FindAllStringSubmatch(own, -1) {
				named, _, err := cmd.Root().Find(strings.Fields(own[strings.Index(own, "etcdkit ")+8:]))
				require.NoError(t, err, own)
				require.True(t, named.Flags().Lookup(m[1]) != nil || cmd.Root().PersistentFlags().Lookup(m[1]) != nil, "%s: no flag --%s", own, m[1])
			}
		}
		for _, f := range append(flagsOf(cmd.LocalNonPersistentFlags()), flagsOf(cmd.PersistentFlags())...) {
			require.NotEmpty(t, f.usage, "%s %s", cmd.CommandPath(), f.name)
		}
		for _, c := range verbsOf(cmd) {
			check(c)
		}
	}
	check(tree())
}

func TestAligned(t *testing.T) {
	got := aligned("$ etcdkit ls\nKIND/NAME  REQUESTS\nsemaphore/charge  4\n{\"a\":1}\nplain text\n  TOKEN  X\nholds  4711  1\n")
	require.Equal(t, "$ etcdkit ls\nKIND/NAME         REQUESTS\nsemaphore/charge  4\n{\"a\":1}\nplain text\n       TOKEN  X\nholds  4711   1\n", got)
	require.Len(t, []rune(strings.TrimSpace(aligned("{"+strings.Repeat("x", 1000)+"\n"))), longest+1)
}
