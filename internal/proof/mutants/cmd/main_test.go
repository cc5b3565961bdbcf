package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/mutants"
)

// Only tests with rapid's flags are given one of them.
func TestUsesRapid(t *testing.T) {
	t.Parallel()
	for pkg, want := range map[string]bool{"../../../keyspace": true, "../../virtual": true, "../../../lease": false, "../../../../schedlock": false} {
		uses, err := usesRapid(t.Context(), pkg)
		require.NoError(t, err)
		require.Equal(t, want, uses, pkg)
	}
	_, err := usesRapid(t.Context(), "./nowhere")
	require.Error(t, err)
}

// A mutant is noticed if its test fails, or never ends; what else ends a run says nothing about it.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	failure := exec.CommandContext(t.Context(), "sh", "-c", "exit 2").Run()
	m := mutants.Mutant{Package: "./x", Test: "TestX"}
	for name, c := range map[string]struct {
		out   string
		err   error
		want  row
		fails bool
	}{
		"it passes":     {"ok", nil, row{seeds: 1, by: "x.TestX"}, false},
		"it fails":      {"--- FAIL: TestX (0.00s)", failure, row{killed: true, seeds: 1, by: "x.TestX"}, false},
		"it hangs":      {"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestX (3m0s)", failure, row{killed: true, hung: true, seeds: 1, by: "x.TestX"}, false},
		"a part hangs":  {"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestX/y (3m0s)", failure, row{killed: true, hung: true, seeds: 1, by: "x.TestX"}, false},
		"another hangs": {"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestY (3m0s)", failure, row{}, true},
		"another fails": {"--- FAIL: TestY (0.00s)", failure, row{}, true},
		"it crashes":    {"panic: nil map", failure, row{}, true},
		"no run":        {"--- FAIL: TestX (0.00s)", os.ErrNotExist, row{}, true},
	} {
		got, err := verdictOf(m, []byte(c.out), c.err)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.fails, err != nil, name)
	}
}

// A process that a mutant leaves behind, and that keeps the pipe of its output open, is not waited for.
func TestOutputOfALeftProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo said; sleep 1000 & echo $!")
	out, err := outputOf(cmd)
	require.NoError(t, err)
	said := strings.Fields(string(out))
	require.Equal(t, "said", said[0])
	pid, err := strconv.Atoi(said[1])
	require.NoError(t, err)
	left, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, left.Kill())
}
