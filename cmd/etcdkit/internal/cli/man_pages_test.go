package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
)

func TestMan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	f := clitest.New(t)
	f.Shows(dir, "man1")
	f.Shell("man man1")
	f.Shell("man man1 -o json")
	f.Shell("man")
	f.Golden("man")
	page, err := os.ReadFile(filepath.Join(dir, "etcdkit-jobs-pause.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "\\-\\-before\\-first\\-run")
	require.Contains(t, string(page), "invoices \\-\\-reason")
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("there is no groff to format the pages")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", page).CombinedOutput() //nolint:gosec,noctx // of this test
		require.NoError(t, err, string(out))
		require.Empty(t, string(out), page)
	}
}
