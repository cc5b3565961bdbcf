package guard

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Remote is a command whose front process is a child of this one, so that a process can have several of them. Its methods
// may be called by several goroutines at once.
//
// If this process dies, the front process ends the command as Stop does. If this process is stopped, it does so at the
// deadline. If the front process is killed, the guard kills the command at once. Signals that this process gets are not
// passed on to the command, whose process group is another one.
type Remote struct {
	front  *exec.Cmd
	events chan Event

	mu     sync.Mutex
	orders *os.File
}

// StartRemote starts a front process, and under it the command, with a standard input. The events are those of Start.
// It returns an error if the front process does not start.
func StartRemote(c Command, until time.Time, in *os.File) (*Remote, error) {
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
	r := &Remote{front: exec.Command("/proc/self/exe", FrontArgument, "3"), events: make(chan Event), orders: orders} //nolint:noctx // Stop ends it
	r.front.Stdin, r.front.Stdout, r.front.Stderr = in, os.Stdout, os.Stderr
	r.front.ExtraFiles = []*os.File{theirs, theirReports}
	r.front.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.front.Start(); err != nil {
		_, _ = orders.Close(), reports.Close()
		return nil, err
	}
	r.send(order{Start: c.start(), Until: boot(until)})
	go r.follow(reports)
	return r, nil
}

// Events returns what happens to the command, until Empty.
func (r *Remote) Events() <-chan Event { return r.events }

// Trust moves the deadline on.
func (r *Remote) Trust(until time.Time) { r.send(order{Until: boot(until)}) }

// Stop has the command end: SIGTERM now to every process that it has started, SIGKILL after the grace.
func (r *Remote) Stop() { r.send(order{Stop: true}) }

// send sends an order. A front process that does not read is stopped: its guard ends the command at the deadline.
func (r *Remote) send(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.orders.SetWriteDeadline(time.Now().Add(patience))
	_, _ = r.orders.Write(append(text, '\n'))
}

// follow passes the reports of the front process on. If that was killed, the reports end when its guard has ended too, which has
// killed the command.
func (r *Remote) follow(reports *os.File) {
	defer close(r.events)
	defer func() { _, _ = r.orders.Close(), reports.Close() }()
	decoder, exited := json.NewDecoder(reports), false
	for {
		var e Event
		if decoder.Decode(&e) != nil {
			break
		}
		if e.Empty {
			_ = r.front.Wait()
			r.events <- e
			return
		}
		exited = exited || e.Exited != nil || e.Failed != nil
		r.events <- e
	}
	_ = r.front.Wait()
	if !exited {
		r.events <- Event{Died: true}
	}
	r.events <- Event{Empty: true}
}

// Front is the body of the front process of a Remote, with the arguments after FrontArgument.
func Front(args []string) int {
	ordersFile, reportsFile, err := filesOf(args)
	if err != nil {
		return 126
	}
	unix.CloseOnExec(ordersFile)
	unix.CloseOnExec(reportsFile)
	orders := json.NewDecoder(os.NewFile(uintptr(ordersFile), "orders"))
	file := os.NewFile(uintptr(reportsFile), "reports")
	reports := json.NewEncoder(file)
	var first order
	if orders.Decode(&first) != nil || first.Start == nil {
		return 1
	}
	g, err := startUntil(context.Background(), first.Start.command(), first.Until, file, func() error { return nil })
	if err != nil {
		_ = reports.Encode(Event{Failed: &Failed{126, err.Error()}})
		_ = reports.Encode(Event{Empty: true})
		return 126
	}
	go func() {
		defer g.Stop() // the other process has died
		for {
			var o order
			if orders.Decode(&o) != nil || o.Stop {
				return
			}
			g.trustUntil(o.Until)
		}
	}()
	for e := range g.Events() {
		_ = reports.Encode(e) // the other process may have died
	}
	return 0
}
