// Package shell has the test of its page: a shell job, once a night on one of several machines.
package shell

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// reader types what the page says.
type reader struct {
	t    *testing.T
	page pagecode.Page
	home string   // the folder in which they type, where it is not the clone
	base []string // the variables of their shells, and vars beside them
	vars []string
}

// block returns the block of the page that begins with a text.
func (r *reader) block(begin string) pagecode.Block {
	r.t.Helper()
	i := slices.IndexFunc(r.page.Blocks, func(b pagecode.Block) bool { return strings.HasPrefix(b.Text, begin) })
	require.GreaterOrEqual(r.t, i, 0, "the page has no block %q", begin)
	return r.page.Blocks[i]
}

// types returns the exit code of a command line, and what it prints.
func (r *reader) types(dir, shell, line string) (code int, printed string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), shell, "-ec", line)
	cmd.Dir, cmd.Env = dir, slices.Concat(r.base, r.vars)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// does types a line that has to end well.
func (r *reader) does(dir, line string) string {
	r.t.Helper()
	code, out := r.types(dir, "bash", line)
	require.Zero(r.t, code, "%s\n%s", line, out)
	return out
}

// starts starts etcdkit-dev as the page does, at another port, and adds the variables that it prints.
func (r *reader) starts(line string) {
	r.t.Helper()
	dev := exec.CommandContext(r.t.Context(), "bash", "-c", "exec "+line+" -port 0")
	dev.Dir, dev.Env = r.home, slices.Concat(r.base, r.vars)
	dev.Cancel = func() error { return dev.Process.Signal(os.Interrupt) }
	dev.WaitDelay = 20 * time.Second
	out, err := dev.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, dev.Start())
	r.t.Cleanup(func() { _ = dev.Wait() })
	for lines := bufio.NewScanner(out); ; {
		require.True(r.t, lines.Scan(), "%s has ended", line)
		if text := strings.TrimSpace(lines.Text()); text == "etcdkit doctor" {
			return
		} else if v, ok := strings.CutPrefix(text, "export "); ok {
			r.vars = append(r.vars, v)
		}
	}
}

// The commands of the page do what it says: the script runs once for two calls, the line of the crontab finds its
// settings, and the command is built without C libraries.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command, and an etcd")
	}
	if runtime.GOOS != "linux" {
		t.Skip("etcdkit jobs run is for Linux")
	}
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("the page's etcd has users of its own")
	}
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	clone, err := filepath.Abs("../../..")
	require.NoError(t, err)
	bin := t.TempDir()
	r := &reader{t: t, page: pagecode.Parse(string(text)), home: t.TempDir(), base: os.Environ(),
		vars: []string{"GOBIN=" + bin, "PATH=" + bin + ":" + os.Getenv("PATH")}}

	install, dev, _ := strings.Cut(strings.TrimSpace(r.block("go install").Text), "\n")
	r.does(clone, install)
	r.starts(dev)
	prepare := r.block("export ETCDKIT_NAMESPACE").Text
	steps := r.block("$ etcdkit jobs run").Steps()
	for _, name := range []string{"backup", "another"} {
		for _, s := range steps {
			printed := r.does(r.home, prepare+strings.Replace(s.Typed, " backup", " "+name, 1))
			require.True(t, pagecode.Shows(strings.Replace(s.Shown, "job backup", "job "+name, 1), printed), "README.md:%d: %s\n%s", s.Line, s.Typed, printed)
		}
	}
	forget := "etcdkit jobs forget backup --yes"
	require.Contains(t, string(text), "`"+forget+"`")
	r.does(r.home, prepare+forget)

	both := r.does(r.home, prepare+"cp backup.sh verify.sh\n"+strings.Replace(r.block("etcdkit jobs run backup").Text, " backup ", " fourth ", 1))
	require.Equal(t, 2, strings.Count(both, "saved 4711 files\n"), both)

	build := strings.TrimSpace(r.block("CGO_ENABLED").Text)
	require.Contains(t, build, " -o etcdkit ")
	r.does(clone, strings.Replace(build, " -o etcdkit ", " -o "+bin+"/etcdkit ", 1))
	r.line()
}

// line types the line of the crontab as cron does, in a shell without variables.
func (r *reader) line() {
	t := r.t
	settings := ""
	for line := range strings.Lines(r.block("ETCDCTL_ENDPOINTS=").Text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ETCDKIT_NAMESPACE":
		case "ETCDCTL_USER":
			value = "nights"
		case "ETCDCTL_PASSWORD":
			value = "secret"
		default:
			value = ""
			for _, v := range r.vars {
				if own, ok := strings.CutPrefix(v, name+"="); ok {
					value = own
				}
			}
		}
		require.NotEmpty(t, value, "nothing stands for %s", name)
		settings += name + "=" + value + "\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.home, "settings"), []byte(settings), 0o600))
	line := strings.TrimSpace(r.block("30 2 * * *").Text)
	command := strings.Join(strings.Fields(line)[5:], " ")
	command = strings.NewReplacer(" backup ", " third ", "/etc/etcdkit.env", r.home+"/settings", "/usr/local/bin/etcdkit", strings.TrimPrefix(r.vars[0], "GOBIN=")+"/etcdkit",
		"/usr/local/bin/", r.home+"/").Replace(command)
	cron := &reader{t: t, base: []string{"PATH=/usr/bin:/bin"}}
	code, printed := cron.types(r.home, "sh", command)
	require.Zero(t, code, printed)
	require.Equal(t, "saved 4711 files\n", printed)
	code, printed = cron.types(r.home, "sh", command)
	require.Zero(t, code, printed)
	require.Empty(t, printed, "cron would send it by mail")
}
