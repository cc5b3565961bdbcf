package guard

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// filesOf returns the two files of a guard, which follow those that the command inherits.
func filesOf(args []string) (orders, reports int, err error) {
	if len(args) != 1 {
		return 0, 0, errors.New("guard: it is started by etcdkit run alone")
	}
	orders, err = strconv.Atoi(args[0])
	return orders, orders + 1, err
}

// lookEvery bounds how late the guard looks at a clock: a timer does not count the time for which the
// machine is suspended.
const lookEvery = 100 * time.Millisecond

// keeper is a guard at work.
type keeper struct {
	orders     chan order // closed when the front process is gone
	reports    *json.Encoder
	child      int // the command's process, or 0 once it has exited
	exited     time.Time
	told       bool // Left was reported
	refused    string
	relay      relay
	terminated bool // SIGTERM has come, to this process or the front process
	// background says that the terminal has stopped the command because it is in the background.
	background bool

	trust  trust
	done   step
	spared []found // have got no SIGTERM of the guard
	pause  pause   // between two attempts to kill
}

// Main is the body of a guard, with the arguments after Argument. It returns when no process is left that the
// command has started.
func Main(args []string) int {
	runtime.LockOSThread() // the kernel sends SIGKILL to the command when the thread that has started it ends
	ordersFile, reportsFile, err := filesOf(args)
	if err != nil {
		return 126
	}
	unix.CloseOnExec(ordersFile)
	unix.CloseOnExec(reportsFile)
	unix.CloseOnExec(reportsFile + 1) // the file that it keeps open, if there is one
	own := make(chan os.Signal, 16)
	catch(own)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	k := &keeper{orders: make(chan order), reports: json.NewEncoder(os.NewFile(uintptr(reportsFile), "reports"))}
	k.report(Event{Ready: true})
	orders := json.NewDecoder(os.NewFile(uintptr(ordersFile), "orders"))
	var first order
	if err := orders.Decode(&first); err != nil || first.Start == nil {
		return 1 // the front process has ended before it asked for anything
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return k.failed(126, err)
	}
	go func() {
		defer close(k.orders)
		for {
			var o order
			if orders.Decode(&o) != nil {
				return
			}
			k.orders <- o
		}
	}()
	c := first.Start.command()
	k.trust = trust{grace: c.Grace, until: first.Until, endLeft: c.EndLeft}
	if code := k.start(c); code != 0 {
		return code
	}
	k.watch(children, own)
	k.report(Event{Empty: true})
	return 0
}

func (k *keeper) report(e Event) { _ = k.reports.Encode(e) } // the front process may be gone

func (k *keeper) failed(code int, err error) int {
	k.report(Event{Failed: &Failed{code, err.Error()}})
	k.report(Event{Empty: true})
	return code
}

// start starts the command, or reports why it cannot.
func (k *keeper) start(c Command) int {
	if s, _ := k.trust.at(time.Duration(sinceBoot())); s != leave {
		return k.failed(126, errors.New("the permit is not trusted any more"))
	}
	path, err := exec.LookPath(c.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return k.failed(failure(err), err)
	}
	k.child, err = execute(path, c)
	if err != nil {
		return k.failed(failure(err), &fs.PathError{Op: "exec", Path: path, Err: explained(path, c.Dir, err)})
	}
	k.relay = newRelay(time.Now())
	k.report(Event{Started: k.child})
	return 0
}

// failure is the exit code for a command that was not found, or cannot be executed.
func failure(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

// watch returns when no process is left.
func (k *keeper) watch(children, own <-chan os.Signal) {
	for {
		next := k.act()
		if !reap(k.ended) {
			return
		}
		if k.background && k.done == leave && k.child != 0 && foreground() {
			k.background = false
			resume(k.child)
		}
		for s, ok := k.relay.due(time.Now()); ok; s, ok = k.relay.due(time.Now()) {
			k.pass(s)
		}
		timer := time.NewTimer(min(next, lookEvery, k.relay.next(time.Now())))
		select {
		case o, ok := <-k.orders:
			k.take(own) // they have come before
			k.obey(o, ok)
		case <-children:
		case s := <-own:
			k.got(s)
		case <-timer.C:
		}
		timer.Stop()
		k.take(own) // before the end of the command, which may be of one
	}
}

// take notes the signals that have come.
func (k *keeper) take(own <-chan os.Signal) {
	for len(own) > 0 {
		k.got(<-own)
	}
}

// got notes a signal to the guard.
func (k *keeper) got(s os.Signal) {
	k.relay.got(s.(syscall.Signal), time.Now())
	k.terminated = k.terminated || s == unix.SIGTERM
	// A shell that brings the job to the foreground continues it only if this process group has stopped,
	// and of it the command alone has.
	k.background = k.background || s == unix.SIGTTIN || s == unix.SIGTTOU
}

// obey takes an order, or notes that the front process is gone.
func (k *keeper) obey(o order, ok bool) {
	switch {
	case !ok:
		k.trust.gone, k.orders = true, nil
	case o.Stop:
		if k.trust.stop == 0 {
			k.trust.stop = time.Duration(sinceBoot())
		}
	case o.Until != 0:
		k.trust.until = max(k.trust.until, o.Until)
	case o.Signal != 0:
		k.relay.ask(o.Signal, time.Now())
		k.terminated = k.terminated || o.Signal == unix.SIGTERM
	}
}

// pass passes a signal on to those that have not got it.
func (k *keeper) pass(s passed) {
	if k.act(); k.done != leave { // nothing continues a command whose time has passed
		return
	}
	k.background = k.background && s.signal != unix.SIGCONT
	if s.signal == unix.SIGCONT || ends(s.signal) { // which has no effect before
		defer resume(k.child)
	}
	has := func(group int) bool { return s.group && group == unix.Getpgrp() }
	if k.child == 0 {
		left, _ := descendants(os.Getpid(), nil)
		for _, p := range left {
			if !has(p.group) {
				_ = send(p, s.signal)
			}
		}
		return
	}
	if group, err := unix.Getpgid(k.child); err != nil || !has(group) {
		_ = unix.Kill(k.child, s.signal) // it is not reaped yet, so the ID is its own
	}
}

// act does what is to be done now, and returns for how long nothing is.
func (k *keeper) act() time.Duration {
	if k.child == 0 && !k.told && time.Since(k.exited) >= time.Second {
		k.told = true
		k.reportLeft()
	}
	now := time.Duration(sinceBoot())
	s, again := k.trust.at(now)
	if s < k.done {
		s = k.done // an end that has begun is final
	}
	if s != leave && k.done == leave {
		reap(k.ended) // a command that has exited is not cut off
	}
	switch {
	case s == leave:
		return again - now
	case s == terminate && k.done != terminate:
		k.done = terminate
		k.refuse(k.terminate())
		k.refuse(sendAll(unix.SIGCONT)) // one that is stopped cannot end
	case s == terminate && now >= again-min(k.trust.grace/4, mostLast):
		k.refuse(sendEach(k.spared, unix.SIGTERM))
		k.spared = nil
	case s == kill:
		k.done = kill
		k.refuse(sendAll(unix.SIGKILL))
		killOrphans(nil, k.ended)
		return k.pause.next()
	}
	return again - now
}

// mostLast bounds how long before SIGKILL a process that was spared gets SIGTERM: a quarter of the grace, at most.
const mostLast = 5 * time.Second

// terminate sends SIGTERM to all descendants, but spares those that are taken to have got one with the guard: systemd sends it to
// each process of a service, and then the front process asks for an end. Whether they have is not known: it may have been for
// the guard alone, or have come before they were started. So those that still run get one when the grace is nearly over. It
// returns the first refusal.
func (k *keeper) terminate() error {
	all, err := descendants(os.Getpid(), nil)
	if err != nil {
		return err
	}
	if k.relay.fresh(unix.SIGTERM, time.Now()) {
		group, service := unix.Getpgrp(), cgroup(os.Getpid())
		all = slices.DeleteFunc(all, func(p found) bool {
			spared := p.beside(group, service)
			if spared {
				k.spared = append(k.spared, p)
			}
			return spared
		})
	}
	return sendEach(all, unix.SIGTERM)
}

func (k *keeper) refuse(err error) {
	if err != nil && k.refused != err.Error() {
		k.refused = err.Error()
		k.report(Event{Refused: k.refused})
	}
}

// ended notes that a child has ended, or stopped.
func (k *keeper) ended(pid int, s unix.WaitStatus) {
	switch {
	case pid != k.child:
		return
	case s.Stopped():
		if s.StopSignal() != unix.SIGSTOP { // of a process that slows it down, or a debugger
			k.report(Event{Stopped: true})
		}
		return
	}
	k.child, k.exited = 0, time.Now()
	status := Status{Code: s.ExitStatus(), CutOff: k.done != leave || k.terminated, Ended: k.done != leave}
	if s.Signaled() {
		status.Code, status.Signal = 0, s.Signal()
	}
	k.report(Event{Exited: &status})
	if k.trust.endLeft && k.trust.stop == 0 {
		k.trust.stop = time.Duration(sinceBoot())
	}
}

func (k *keeper) reportLeft() {
	all, err := descendants(os.Getpid(), nil)
	if err != nil {
		return
	}
	var left []Process
	for _, p := range all {
		left = append(left, Process{p.pid, p.name})
	}
	if len(left) > 0 {
		k.report(Event{Left: left})
	}
}
