package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guarded is a command that runs under a guard. Its methods may be called by several goroutines at once.
type Guarded struct {
	grace   time.Duration
	guard   *exec.Cmd
	orders  *os.File
	reports *os.File
	decoder *json.Decoder // of reports
	events  chan Event
	others  others        // children from before
	died    chan struct{} // closed when the guard has ended
	over    chan struct{} // closed when no process is left

	// Only follow uses these.
	refused  string
	exited   bool // Exited or Failed was passed on
	alone    int  // how often in a row no process but the guard was left, after its time
	terminal modes

	mu    sync.Mutex
	trust trust
}

// slack is how much later than the guard the front process kills, if the guard does not. A guard that has
// not reported the end for patience after the last process has ended has failed. That is counted in looks of this process, as
// a machine that is short of processor time, or was suspended, keeps both from running.
const (
	slack    = 50 * time.Millisecond
	patience = time.Second
	between  = slack / 10 // two looks
)

// Start starts a guard, and the command under it. The command has ended at the deadline plus the grace, or
// earlier, see Stop. This process becomes a subreaper, and catches the signals that a terminal and an operator send;
// Events passes the command's events, and must be read until Empty.
//
// What this process has started before is not the command's, as where a shell has started something and then executed
// this program in its own place. It must start nothing afterwards. Their orphans are taken for the command's.
//
// Start calls begin when the guard is ready and the signals are caught: from then on they are the command's.
// If begin returns an error, or ctx ends before, the command is not started and Start returns the error; a
// *KilledError if a signal ends the guard before.
func Start(ctx context.Context, c Command, until time.Time, begin func() error) (*Guarded, error) {
	return startUntil(ctx, c, boot(until), nil, begin)
}

// startUntil is Start with a deadline since boot, and a file that the guard keeps open until it has ended, or nil.
func startUntil(ctx context.Context, c Command, until time.Duration, kept *os.File, begin func() error) (*Guarded, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("guard: there is no command")
	}
	before, err := descendants(os.Getpid(), nil)
	if err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	g := &Guarded{
		grace: c.Grace, events: make(chan Event), died: make(chan struct{}), over: make(chan struct{}), terminal: modesOfTerminal(),
		trust: trust{grace: c.Grace, until: until}, others: others{},
	}
	for _, p := range before {
		g.others[p.pid] = p.started
	}
	if err := g.spawn(kept); err != nil {
		return nil, err
	}
	err = g.ready(ctx)
	signals := make(chan os.Signal, 16)
	if err == nil {
		catch(signals) // for the rest of this process: what comes after the command has ended ends nothing either
		err = begin()
	}
	if err != nil {
		_, _, _ = g.guard.Process.Kill(), g.orders.Close(), g.reports.Close()
		<-g.died
		return nil, err
	}
	_ = json.NewEncoder(g.orders).Encode(order{Start: c.start(), Until: g.trust.until}) // a guard that has died is noticed below
	go g.follow()
	go g.forward(signals)
	return g, nil
}

// spawn starts the guard.
func (g *Guarded) spawn(kept *os.File) error {
	theirs, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	reports, theirReports, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return err
	}
	defer func() { _ = theirReports.Close() }()
	g.orders, g.reports, g.decoder = orders, reports, json.NewDecoder(reports)
	others, err := inherited()
	defer func() { // the command has them; also nil
		for _, f := range others {
			_ = f.Close()
		}
	}()
	if err == nil {
		g.guard = exec.Command("/proc/self/exe", Argument, strconv.Itoa(3+len(others)))
		g.guard.Stdin, g.guard.Stdout, g.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
		g.guard.ExtraFiles = append(slices.Clone(others), theirs, theirReports, kept)
		err = g.guard.Start()
	}
	if err != nil {
		_, _ = orders.Close(), reports.Close()
		return err
	}
	go func() { defer close(g.died); _ = g.guard.Wait() }()
	return nil
}

// ready waits until the guard catches signals.
func (g *Guarded) ready(ctx context.Context) error {
	first := make(chan error, 1)
	go func() {
		var e Event
		first <- g.decoder.Decode(&e)
	}()
	select {
	case err := <-first:
		if err == nil {
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	<-g.died
	if s, ok := g.guard.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return &KilledError{s.Signal()}
	}
	return fmt.Errorf("the guard process has failed (%v), so the command was not started", g.guard.ProcessState)
}

// inherited returns the files, from descriptor 3 on, that this process was started with, at their places: all
// others are closed when a program is executed.
func inherited() (files []*os.File, err error) {
	open, err := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		fd, other := strconv.Atoi(e.Name())
		if other != nil || fd < 3 {
			continue
		}
		flags, closed := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if closed != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if more := fd - 2 - len(files); more > 0 {
			files = append(files, make([]*os.File, more)...)
		}
		files[fd-3] = os.NewFile(uintptr(fd), "inherited")
	}
	return files, err
}

// boot converts a deadline to the time since boot, by the clock that reaches it first.
func boot(until time.Time) time.Duration {
	now := time.Now()
	left := min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
	return time.Duration(sinceBoot()) + left
}

// Events returns what happens to the command.
func (g *Guarded) Events() <-chan Event { return g.events }

// Trust moves the deadline on. A deadline that is earlier than the present one changes nothing.
func (g *Guarded) Trust(until time.Time) {
	g.trustUntil(boot(until))
}

// trustUntil is Trust with a deadline since boot.
func (g *Guarded) trustUntil(at time.Duration) {
	g.mu.Lock()
	g.trust.until = max(g.trust.until, at)
	g.mu.Unlock()
	g.send(order{Until: at})
}

// Stop has the command end: SIGTERM now to every process that it has started, SIGKILL after the grace.
func (g *Guarded) Stop() {
	g.mu.Lock()
	if g.trust.stop == 0 {
		g.trust.stop = time.Duration(sinceBoot())
	}
	g.mu.Unlock()
	g.send(order{Stop: true})
}

// Signal passes a signal on to the command that this process has got, and once it has exited to all that it has
// left: to those that have not got it by themselves, as members of the process group that it was sent to.
func (g *Guarded) Signal(s syscall.Signal) {
	if stopped(g.guard.Process.Pid) { // with its process group
		_ = g.guard.Process.Signal(unix.SIGCONT)
	}
	g.send(order{Signal: s})
}

// send sends an order. A guard that does not read is stopped, or about to be killed; then the order is
// dropped, since what is left to do is not the guard's.
func (g *Guarded) send(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		return
	}
	_ = g.orders.SetWriteDeadline(time.Now().Add(slack))
	_, _ = g.orders.Write(append(text, '\n'))
}

// follow passes the guard's reports on until no process is left.
func (g *Guarded) follow() {
	defer close(g.events)
	defer close(g.over)
	defer func() { _, _ = g.orders.Close(), g.reports.Close() }()
	quit := make(chan struct{})
	defer close(quit)
	reports := g.decode(quit)
	look := time.NewTicker(slack)
	defer look.Stop()
	for {
		select {
		case e, ok := <-reports:
			if !ok { // the guard has died
				g.killAll()
				return
			}
			if e.Empty {
				_ = g.guard.Process.Kill() // it has nothing left to do, and may be stopped
				<-g.died
				g.events <- e
				return
			}
			if e.Refused != "" {
				g.refuse(e.Refused)
				continue
			}
			if e.Exited != nil && e.Exited.Signal != 0 {
				g.terminal.restore()
			}
			g.exited = g.exited || e.Exited != nil || e.Failed != nil
			g.events <- e
		case <-look.C:
			if !g.late(slack) {
				continue
			}
			look.Reset(between)
			if g.failed(g.kill()) || g.alone > 0 && stopped(g.guard.Process.Pid) {
				g.killAll()
				return
			}
		}
	}
}

// decode reads the guard's reports until quit is closed, or until the guard has died: then the channel is closed.
func (g *Guarded) decode(quit <-chan struct{}) <-chan Event {
	reports := make(chan Event)
	go func() {
		defer close(reports)
		for {
			var e Event
			if g.decoder.Decode(&e) != nil {
				return
			}
			select {
			case reports <- e:
			case <-quit:
				return
			}
		}
	}()
	return reports
}

// failed reports whether the guard has had time enough to report the end, when another look has found so many processes beside it.
func (g *Guarded) failed(left int) bool {
	g.alone++
	if left > 0 {
		g.alone = 0
	}
	return g.alone > int(patience/between)
}

// late reports whether the guard should have killed the command so long ago.
func (g *Guarded) late(by time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, _ := g.trust.at(time.Duration(sinceBoot()) - by)
	return s == kill
}

// kill kills everything below this process but the guard, which is to report the end, and others. It returns how many
// processes there were.
func (g *Guarded) kill() int {
	all, err := descendants(os.Getpid(), g.others)
	if err == nil {
		all = slices.DeleteFunc(all, func(p found) bool { return p.pid == g.guard.Process.Pid })
		err = sendEach(all, unix.SIGKILL)
	}
	if err != nil {
		g.refuse(err.Error())
	}
	return len(all)
}

// refuse reports once why a process cannot be ended, of what both processes find.
func (g *Guarded) refuse(why string) {
	if g.refused != why {
		g.refused = why
		g.events <- Event{Refused: why}
	}
}

// killAll kills everything below this process but others: first what the guard was to kill, then the guard, whose
// orphans become children of this process.
func (g *Guarded) killAll() {
	killed := g.kill()
	_ = g.guard.Process.Kill()
	<-g.died
	for p := pause(0); g.left(); time.Sleep(p.next()) {
		killed += g.kill()
		killOrphans(g.others, nil)
	}
	g.terminal.restore()
	switch {
	case !g.exited:
		g.events <- Event{Died: true}
	case killed > 0:
		g.events <- Event{Cleared: true}
	}
	g.events <- Event{Empty: true}
}

// left reports whether this process has children that are not others. Without others, the kernel says that.
func (g *Guarded) left() bool {
	if !reap(nil) {
		return false
	}
	if len(g.others) == 0 {
		return true
	}
	all, err := descendants(os.Getpid(), g.others)
	return err != nil || len(all) > 0 || slices.ContainsFunc(children(), func(pid int) bool { return !g.others.has(pid) })
}

// forward passes on to the command what this process gets, but what is of no use to it.
func (g *Guarded) forward(signals <-chan os.Signal) {
	for {
		select {
		case <-g.over:
			return
		case s := <-signals:
			if s != unix.SIGTTIN && s != unix.SIGTTOU && s != unix.SIGPIPE {
				g.Signal(s.(syscall.Signal))
			}
		}
	}
}
