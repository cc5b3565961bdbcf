package cli

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// No line of a text is a request of roff.
func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "--yes": `\-\-yes`, ".so /etc/passwd": `\&.so /etc/passwd`, "'quoted'": `\&'quoted'`, `a\b`: `a\eb`, "one\n\ntwo": "one\n.PP\ntwo",
	} {
		require.Equal(t, want, roff(text), text)
	}
}

// mandoc's warnings: a page without a date, and a tab in a paragraph.
func TestManHasADateAndNoTabs(t *testing.T) {
	t.Parallel()
	pages := manuals(tree())
	require.NotEmpty(t, pages)
	for name, page := range pages {
		require.Regexp(t, regexp.MustCompile(`^\.TH "[A-Z-]+" 1 "\d{4}-\d\d-\d\d" `), page, name)
		require.NotContains(t, page, "\t", name)
	}
	require.Contains(t, pages["etcdkit-completion-bash.1"], ".nf\nsource <(etcdkit completion bash)\n.fi")
}
