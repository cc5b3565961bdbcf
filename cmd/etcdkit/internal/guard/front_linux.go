package guard

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
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
	events  chan Event
	died    chan struct{} // closed when the guard has ended
	over    chan struct{} // closed when no process is left

	refused string
	exited  bool // Exited or Failed was passed on; only follow uses it

	mu    sync.Mutex
	trust trust
}

// slack is how much later than the guard the front process kills, if the guard does not. A guard that has
// not reported the end after patience has failed.
const (
	slack    = 50 * time.Millisecond
	patience = time.Second
)

// Start starts a guard, and the command under it. The command has ended at the deadline plus the grace, or
// earlier, see Stop. This process must have no other children, becomes a subreaper, and catches the signals
// that a terminal and an operator send; Events passes the command's events, and must be read until Empty.
func Start(c Command, until time.Time) (*Guarded, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("guard: there is no command")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	theirs, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	reports, theirReports, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return nil, err
	}
	defer func() { _ = theirReports.Close() }()
	g := &Guarded{
		grace: c.Grace, orders: orders, reports: reports, events: make(chan Event), died: make(chan struct{}), over: make(chan struct{}),
		trust: trust{grace: c.Grace, until: boot(until)},
	}
	others := inherited()
	defer func() {
		for _, f := range others {
			_ = f.Close() // also nil
		}
	}()
	g.guard = exec.Command("/proc/self/exe", Argument, strconv.Itoa(3+len(others)))
	g.guard.Stdin, g.guard.Stdout, g.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.guard.ExtraFiles = append(slices.Clone(others), theirs, theirReports)
	signals := make(chan os.Signal, 16)
	catch(signals) // before the command can be running
	if err := g.guard.Start(); err != nil {
		signal.Stop(signals)
		_, _ = orders.Close(), reports.Close()
		return nil, err
	}
	go func() { defer close(g.died); _ = g.guard.Wait() }()
	_ = json.NewEncoder(orders).Encode(order{Start: c.start(), Until: g.trust.until}) // a guard that has died is noticed below
	go g.follow()
	go g.forward(signals)
	return g, nil
}

// mostFiles bounds the descriptors that a command inherits.
const mostFiles = 1024

// inherited returns copies of the files, from descriptor 3 on, that this process was started with, at their
// places: all others are closed when a program is executed.
func inherited() (files []*os.File) {
	for fd := 3; fd < mostFiles; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, mostFiles)
		if err != nil {
			continue
		}
		files = slices.Grow(files, fd-2-len(files))[:fd-2]
		files[fd-3] = os.NewFile(uintptr(copied), "inherited")
	}
	return files
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
	at := boot(until)
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

// Signal passes a signal on to the command; once it has exited, to all that it has left.
func (g *Guarded) Signal(s syscall.Signal) { g.send(order{Signal: s}) }

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
	reports := make(chan Event)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		defer close(reports)
		d := json.NewDecoder(g.reports)
		for {
			var e Event
			if d.Decode(&e) != nil {
				return
			}
			select {
			case reports <- e:
			case <-quit:
				return
			}
		}
	}()
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
			g.exited = g.exited || e.Exited != nil || e.Failed != nil
			g.events <- e
		case <-look.C:
			if !g.late(slack) {
				continue
			}
			look.Reset(slack / 10)
			if g.kill() == 0 && (g.late(patience) || stopped(g.guard.Process.Pid)) {
				g.killAll()
				return
			}
		}
	}
}

// late reports whether the guard should have killed the command so long ago.
func (g *Guarded) late(by time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, _ := g.trust.at(time.Duration(sinceBoot()) - by)
	return s == kill
}

// kill kills everything below this process but the guard, which is to report the end, and returns how many processes there were.
func (g *Guarded) kill() int {
	n, err := sendAll(os.Getpid(), unix.SIGKILL, g.guard.Process.Pid)
	if err != nil && g.refused != err.Error() {
		g.refused = err.Error()
		g.events <- Event{Refused: g.refused}
	}
	return n
}

// killAll kills everything below this process: first what the guard was to kill, then the guard, whose
// orphans become children of this process.
func (g *Guarded) killAll() {
	g.kill()
	_ = g.guard.Process.Kill()
	<-g.died
	for p := pause(0); reap(nil); time.Sleep(p.next()) {
		g.kill()
		killOrphans(nil)
	}
	if !g.exited {
		g.events <- Event{Died: true}
	}
	g.events <- Event{Empty: true}
}

// forward passes signals on to the command that a terminal has not sent to it already.
func (g *Guarded) forward(signals chan os.Signal) {
	defer signal.Stop(signals)
	for {
		select {
		case <-g.over:
			return
		case s := <-signals:
			if s := s.(syscall.Signal); !fromTerminal(s) {
				g.Signal(s)
			}
		}
	}
}

// fromTerminal reports whether a terminal has sent a signal to the command too, which is in the process
// group of this process. The sender of a signal is not known: a signal that another process sends to this
// process alone, while it is in the foreground of its terminal, is taken for one of the terminal.
func fromTerminal(s syscall.Signal) bool {
	switch s {
	case unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE:
		return true // nothing is to be passed on
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGWINCH:
	default:
		return false
	}
	return foreground()
}

// foreground reports whether this process is in the foreground of its terminal.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
