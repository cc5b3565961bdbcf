package main

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

var (
	cold   = flag.Bool("cold", false, "TestFirstOutput: compile everything, with an empty build cache")
	within = flag.Duration("within", 0, "TestFirstOutput: fail if the first output comes later; 0: print the time alone")
)

// unreachable is how go says that it has no way to a module.
var unreachable = regexp.MustCompile(`dial tcp|module lookup disabled|TLS handshake timeout|no such host`)

// A newcomer pastes the first program of README into an empty folder, types what README says, and runs it: it compiles
// and prints its line. The time until then is printed, and asserted by make first-output alone.
func TestFirstOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	blocks := pagecode.Parse(string(text)).Blocks
	block := func(is func(pagecode.Block) bool) string {
		i := slices.IndexFunc(blocks, is)
		require.GreaterOrEqual(t, i, 0, "README.md has no program, or no commands that make a module use a clone")
		return blocks[i].Text
	}
	program := block(func(b pagecode.Block) bool { return b.Lang == "go" })
	lines := block(func(b pagecode.Block) bool { return strings.HasPrefix(b.Text, "go mod edit ") })
	etcd := embedtest.Start(t, nil)
	program = strings.Replace(program, `"127.0.0.1:2379"`, `"`+etcd.Endpoints()[0]+`"`, 1)

	dir := t.TempDir()
	env := append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOSUMDB=off", "GOWORK=off")
	if *cold {
		env = append(env, "GOCACHE="+filepath.Join(dir, "cache"))
	}
	begun := time.Now()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	command := func(line string) *exec.Cmd {
		args := strings.Fields(strings.ReplaceAll(line, "/path/to/the/clone", root))
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		return cmd
	}
	for line := range strings.Lines("go mod init example.com/empty\n" + lines) {
		out, err := command(line).CombinedOutput()
		if unreachable.Match(out) && !*cold && *within == 0 { // make first-output has been asked for it
			t.Skipf("modules cannot be downloaded here: %s", out)
		}
		require.NoError(t, err, "%s%s", line, out)
	}
	tidied := time.Since(begun)
	run := command("go run .")
	var errs strings.Builder
	run.Stderr = &errs
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	first, _ := bufio.NewReader(out).ReadString('\n')
	took := time.Since(begun)
	err = run.Wait()
	require.Contains(t, first, "charged under permit", "%v %s", err, &errs)
	require.NoError(t, err, "%s", &errs)
	used := run.ProcessState.UserTime() + run.ProcessState.SystemTime() // of the compiler, too
	t.Logf("the first output comes %.1f s after the empty folder, %.1f s of it for go mod; go run takes %.1f s of processor time",
		took.Seconds(), tidied.Seconds(), used.Seconds())
	if *within > 0 && took > *within {
		t.Errorf("the first output comes after %.1f s, want %v", took.Seconds(), *within)
	}
}
