package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/signal"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// WorkerEnv makes the program a client process: it holds its settings. A program, or
// the TestMain of a test, calls Worker if it is set.
const WorkerEnv = "CHAOS_WORKER"

// settings are what a client process gets at its start.
type settings struct {
	Seed        chaos.Seed
	Name        string   // unique in the run
	Sessions    []string // their names
	Control     string   // socket
	History     string   // file
	TTL, Margin time.Duration
	Rate        int // operations per second
	Proxied     bool
}

// probing bounds the use of everything when all is well again.
const probing = chaos.Slowness * 2 * time.Minute

// Worker is the life of a client process. It returns the exit status.
func Worker() int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which sees to it that we end
	if err := work(os.Getenv(WorkerEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(raw string) error {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	parent, err := rpc.Dial("unix", s.Control)
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	file, err := os.OpenFile(s.History, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	recorder := history.NewRecorder()
	recorder.Stream(file)

	env, err := chaos.Attach(chaos.AttachConfig{
		Seed: s.Seed, Recorder: recorder, Names: s.Sessions, TTL: s.TTL, Margin: s.Margin, AllowProxy: s.Proxied,
		Cluster: embedtest.Start(alone{}, nil), // at EMBEDTEST_ENDPOINTS
		Log:     func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	register := func(name string) chaos.Register { return remote{name, parent} }
	workloads := workloads(register)

	faults, end := context.WithCancel(context.Background())
	defer end()
	go func() { // it ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	next := make(chan error, 1)
	phase := Faults
	go func() {
		next <- parent.Call("Control.Next", Faults, &phase)
		end()
	}()
	env.Work(faults, workloads, s.Rate)
	if err := <-next; err != nil {
		return err
	}
	for ; phase < Leave; err = parent.Call("Control.Next", phase, &phase) {
		if err != nil {
			return err
		}
		if err := parent.Call("Control.Done", Report{s.Name, phase, do(env, phase, workloads)}, nil); err != nil {
			return err
		}
	}
	return parent.Call("Control.Done", Report{s.Name, phase, do(env, phase, workloads)}, nil)
}

// workloads are what a client process uses.
func workloads(register func(name string) chaos.Register) []chaos.Workload {
	return []chaos.Workload{
		chaos.NewSemaphores(), chaos.NewKept(), chaos.NewKeyed(), chaos.NewRates(), chaos.NewMutexesOn(register),
		chaos.NewElectionsOn(register), chaos.NewJobsOn(register), chaos.NewRequests(0),
	}
}

// do does what a phase after the faults is for.
func do(env *chaos.Env, p Phase, workloads []chaos.Workload) []string {
	ctx, cancel := context.WithTimeout(context.Background(), probing)
	defer cancel()
	switch p {
	case Probe:
		return env.Probe(ctx, workloads)
	case Leave:
		return env.Leave(ctx)
	}
	return nil
}

// remote is a register of the parent's.
type remote struct {
	name   string
	parent *rpc.Client
}

// Write implements chaos.Register.
func (r remote) Write(token int64) (bool, int64) {
	var a Answer
	if err := r.parent.Call("Control.Write", Offer{r.name, token}, &a); err != nil {
		fmt.Fprintln(os.Stderr, "the parent is gone:", err)
		os.Exit(1)
	}
	return a.Accepted, a.Number
}

// alone replaces the testing.TB that a process does not have.
type alone struct{}

func (alone) Helper()                  {}
func (alone) Name() string             { return "worker" }
func (alone) Logf(string, ...any)      {}
func (alone) Skipf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (alone) Cleanup(func())           {}
func (alone) Failed() bool             { return false }
func (alone) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}
