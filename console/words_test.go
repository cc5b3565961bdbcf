package console

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What ends a request at once is called eviction wherever an operator meets it, as in the list of changes, the command and
// the error that the holder gets: a page called it to end, to remove and to evict.
func TestEvictionHasOneWord(t *testing.T) {
	t.Parallel()
	o := order{Action: Action{Evict, "semaphore/charge", "7"}}
	holds, waits := o.confirmation(target{}), o.confirmation(target{waits: true})
	many := (&bulk{verb: Evict}).page()
	for _, text := range []string{holds.Question, holds.Button, waits.Question, waits.Button, many.Question, many.Button, done[Evict]} {
		require.Regexp(t, "^(Evict|The request is evicted)", text)
	}
	templates, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	for _, name := range templates {
		page, err := files.ReadFile(name)
		require.NoError(t, err)
		for link := range strings.SplitSeq(string(page), "<a ") {
			if href, rest, _ := strings.Cut(link, ">"); strings.Contains(href, "do=evict") {
				require.True(t, strings.HasPrefix(rest, "Evict"), "%s: %.40s", name, rest)
			}
		}
	}
}
