package cron_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
)

const nightCrontab = `CRON_TZ=Europe/Berlin
SHELL=/bin/bash
# job: backup at-most=2h retries=1
30 2 * * *  /usr/local/bin/backup --all
# job: sweep
0 * * * *  sweep
# job: leap
0 0 29 2 *  leap /srv/years
`

// TestCronCheckTranscript is the example of the documentation, on one day.
func TestCronCheckTranscript(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	jobs, problems := crontab.Read(nightCrontab, nil)
	require.Empty(t, problems)
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, output := range []string{"table", "json"} {
		var out bytes.Buffer
		c := &verb.Call{Std: verb.Streams{Out: &out}, Output: output}
		require.NoError(t, cron.PrintCheck(c, jobs, now))
		line := map[string]string{"table": "", "json": " -o json"}[output]
		fmt.Fprintf(&f.Script, "$ etcdkit cron --check crontab%s\n%s", line, &out)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("0 3 * * * backup\n# job: sweep\n*/90 * * * * sweep\n# job: leap\n0 0 30 2 * leap\n# job: start\n@reboot start\n"), 0o600))
	f.Shows(bad, "bad")
	require.Equal(t, exit.Usage, f.Shell("cron --check --zone UTC bad").Code)
	f.Golden("cron")
}

// What a wrong call is refused with.
func TestCronRefuses(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("# nothing\nA=b\n"), 0o600))
	for args, want := range map[string]string{
		"cron " + empty:                  "has no line that runs a command",
		"cron " + empty + ".no":          "no such file",
		"cron " + empty + " --zone Mars": `--zone "Mars" is no time zone`,
		"cron " + empty + " --grace -1s": "--grace -1s is negative",
	} {
		r := f.Run(append(strings.Fields(args), "-N", "test")...)
		require.Equal(t, exit.Usage, r.Code, args)
		require.Contains(t, r.Err, want, args)
	}
}
