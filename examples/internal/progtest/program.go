package progtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
)

// asProgram makes a test binary be the program. The processes that it starts inherit it.
const asProgram = "EXAMPLE_TEST_MAIN"

// tick is the time between two looks at a program.
const tick = time.Millisecond

// Main is the body of TestMain of an example with that main function.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	embedtest.Main(m)
}

// Program is the example as a process that was not started yet. At the end of its test
// nothing may be left in its folder for temporary files.
type Program struct {
	*exec.Cmd
	Out, Err bytes.Buffer // to be read when it has ended

	t   *testing.T
	tmp string
}

// New returns the program with its flags. More for its environment goes to Env.
func New(t *testing.T, args ...string) *Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Cmd: exec.CommandContext(t.Context(), self, args...), t: t, tmp: t.TempDir()}
	p.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+p.tmp)
	p.Stdout, p.Stderr = &p.Out, &p.Err
	t.Cleanup(func() {
		if left := p.temporary(); len(left) > 0 {
			t.Errorf("temporary files are left: %q", left)
		}
	})
	return p
}

func (p *Program) temporary() []string {
	left, _ := filepath.Glob(filepath.Join(p.tmp, "*"))
	return left
}

// Result runs the program, reads the last line of its output as JSON into v, and returns
// its exit status.
func (p *Program) Result(v any) (status int) {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.Run(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	p.t.Logf("%s%s", &p.Err, &p.Out)
	LastLine(p.t, p.Out.String(), v)
	return p.ProcessState.ExitCode()
}

// Ends runs the program, which has to end with that exit status, having said that on its
// standard error.
func (p *Program) Ends(status int, says string) {
	p.t.Helper()
	_ = p.Run()
	p.ended(status, says)
}

// Interrupted starts the program and interrupts it somewhere in its run. It has to end
// all its processes, and to say so.
func (p *Program) Interrupted() {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("a process cannot be interrupted from outside here")
	}
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	// Its etcd has files as soon as the program listens to signals; an external one has none.
	wait := time.Minute
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		wait = 5 * time.Second
	}
	for ; wait > 0 && len(p.temporary()) == 0; wait -= tick {
		time.Sleep(tick)
	}
	time.Sleep(rand.N(2 * time.Second))
	if err := p.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	_ = p.Wait()
	p.ended(130, "all processes have ended")
}

func (p *Program) ended(status int, says string) {
	p.t.Helper()
	if code := p.ProcessState.ExitCode(); code != status || !strings.Contains(p.Err.String(), says) {
		p.t.Errorf("status %d, want %d and %q\nstdout: %s\nstderr: %s", code, status, says, &p.Out, &p.Err)
	}
}

// LastLine reads the last line of an output as JSON into v.
func LastLine(t *testing.T, output string, v any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), v); err != nil {
		t.Fatalf("the last line is no JSON: %v\n%s", err, output)
	}
}
