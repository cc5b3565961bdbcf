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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
)

// asProgram is the environment variable that makes a test binary run the program. Its child
// processes inherit it.
const asProgram = "EXAMPLE_TEST_MAIN"

// tick is a polling interval.
const tick = time.Millisecond

// Main is the body of the TestMain of an example; main is its main function. childEnv are the environment
// variables that make the program a child of one that Run runs. The tests do not see the variables of etcdctl.
func Main(m *testing.M, main func(), childEnv ...string) {
	for _, name := range append(childEnv, asProgram) {
		if os.Getenv(name) != "" {
			main()
			return
		}
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ETCDCTL_") {
			_ = os.Unsetenv(name) // its user's own etcd
		}
	}
	embedtest.Main(m)
}

// Program is the example as a process that is not started yet. At the end of its test, its
// directory for temporary files must be empty.
type Program struct {
	*exec.Cmd
	Out, Err bytes.Buffer // to be read after its end

	t   *testing.T
	tmp string
}

// New returns the program with flags. Append to Env for its environment.
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
			t.Errorf("the program left temporary files: %q", left)
		}
	})
	return p
}

func (p *Program) temporary() []string {
	left, _ := filepath.Glob(filepath.Join(p.tmp, "*"))
	return left
}

// Result runs the program, decodes the last line of its output as JSON into v, and returns its
// exit status.
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

// Ends runs the program. It fails the test unless the program exits with status and its standard
// error contains text.
func (p *Program) Ends(status int, text string) {
	p.t.Helper()
	_ = p.Run()
	p.ended(status, text)
}

// Interrupted starts the program and interrupts it at a random time. It fails the test unless
// the program exits with status 130 and reports that all its processes have ended.
func (p *Program) Interrupted() {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("this system cannot interrupt a process")
	}
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	// When the program handles signals, its embedded etcd creates files. For an external etcd
	// there is no signal to wait for.
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

func (p *Program) ended(status int, text string) {
	p.t.Helper()
	if code := p.ProcessState.ExitCode(); code != status || !strings.Contains(p.Err.String(), text) {
		p.t.Errorf("status %d, want %d and %q\nstdout: %s\nstderr: %s", code, status, text, &p.Out, &p.Err)
	}
}

// LastLine decodes the last line of an output as JSON into v.
func LastLine(t *testing.T, output string, v any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), v); err != nil {
		t.Fatalf("the last line is not JSON: %v\n%s", err, output)
	}
}

// Broken returns the violations of an example's promises. Under the race detector it leaves out those
// that contain the text, which are of promises about time.
func Broken(violations []string, late string) []string {
	if !Racing {
		return violations
	}
	return slices.DeleteFunc(slices.Clone(violations), func(v string) bool { return strings.Contains(v, late) })
}
