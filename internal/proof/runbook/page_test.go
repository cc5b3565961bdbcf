package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSections(t *testing.T) {
	t.Parallel()
	got, err := sections("# Page\n\n## One\n\nText. No session is lost.\n\n```sh\na\nb\n```\n\n```text\nno\n```\n\n```sh\nc\n```\n\n## Two\n\n" + fillWords + "\n\n```sh\nd\n```\n")
	require.NoError(t, err)
	require.Equal(t, []section{{title: "One", script: "a\nb\nc\n", keeps: true}, {title: "Two", script: "d\n", fill: true}}, got)

	_, err = sections("```sh\na\n```\n")
	require.ErrorContains(t, err, "before the first section")
	_, err = sections("## One\n```sh\na\n")
	require.ErrorContains(t, err, "has no end")
}

// The whole run takes minutes and is a part of make verify. The page must be a script at any time.
func TestThePageIsAScript(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/runbook.md")
	require.NoError(t, err)
	all, err := sections(string(page))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 11)
	require.Equal(t, restore, all[len(all)-1].title, "whose tokens are compared")
	for _, s := range all {
		require.NotEmpty(t, s.script, s.title)
	}
	bash := exec.CommandContext(t.Context(), "bash", "-n")
	bash.Stdin = strings.NewReader(script(all))
	out, err := bash.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
