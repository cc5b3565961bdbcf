package guard

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// found is a process in /proc.
type found struct {
	pid, parent int
	group       int // the process group
	state       byte
	threads     int
	started     string // the time of its start, by which a reused process ID is noticed
	name        string
}

// dead reports whether a process has ended. One whose main thread has ended is in state Z too, as long as it has others.
func (p found) dead() bool { return p.state == 'X' || p.state == 'Z' && p.threads <= 1 }

// others are processes that are not the command's: their IDs, and when they were started.
type others map[int]string

// has reports whether a process is one of them.
func (o others) has(pid int) bool {
	started, ok := o[pid]
	if !ok {
		return false
	}
	p, lives := look(pid)
	return lives && p.started == started
}

// descendants returns the processes below one that are not dead yet, without others and what is below those.
func descendants(of int, not others) ([]found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	below := map[int][]found{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := look(pid); ok {
				below[p.parent] = append(below[p.parent], p)
			}
		}
	}
	var out []found
	for next := below[of]; len(next) > 0; {
		p := next[0]
		next = next[1:]
		if started, ok := not[p.pid]; ok && started == p.started {
			continue
		}
		next = append(next, below[p.pid]...)
		if !p.dead() {
			out = append(out, p)
		}
	}
	return out, nil
}

// look reads what /proc has of a process. See proc_pid_stat(5).
func look(pid int) (p found, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')') // a name may have parentheses
	if open < 0 || end < open {
		return p, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 {
		return p, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	group, groupErr := strconv.Atoi(string(fields[2]))
	threads, threadsErr := strconv.Atoi(string(fields[17]))
	p = found{pid: pid, parent: parent, group: group, state: fields[0][0], threads: threads, started: string(fields[19]), name: string(stat[open+1 : end])}
	return p, err == nil && groupErr == nil && threadsErr == nil
}

// cgroup returns what /proc has of the control groups of a process, or "" if that cannot be read.
func cgroup(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return string(text)
}

// beside reports whether a process is in that process group and in those control groups. Both count: a service may have processes
// in other groups, and a process group may have some that were moved to another service.
func (p found) beside(group int, control string) bool {
	return p.group == group && cgroup(p.pid) == control
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	p, ok := look(pid)
	return ok && p.state == 'T'
}

// send sends a signal to a process that was found, and not to another one that has its ID by now. It
// returns an error only if the process lives and may not be signalled.
func send(p found, s unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if now, ok := look(p.pid); !ok || now.started != p.started {
		return nil
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, s, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // before Linux 5.3, out of files, or refused by a sandbox
		err = unix.Kill(p.pid, s)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// sendAll sends a signal to all descendants, and returns the first refusal.
func sendAll(s unix.Signal) (refused error) {
	all, err := descendants(os.Getpid(), nil)
	if err != nil {
		return err
	}
	return sendEach(all, s)
}

// sendEach sends a signal to processes, and returns the first refusal.
func sendEach(all []found, s unix.Signal) (refused error) {
	for _, p := range all {
		if err := send(p, s); err != nil && refused == nil {
			refused = &os.SyscallError{Syscall: "send " + s.String() + " to " + Process{p.pid, p.name}.String(), Err: err}
		}
	}
	return refused
}

// killOrphans kills processes that have lost their parent, for a moment without pause: a program that forks
// and exits at once has another process before all of them can be listed, but it is an orphan by then, and a
// child of the subreaper, which is this process. The caller alone reaps children, so their IDs are their own.
func killOrphans(not others, ended func(pid int, s unix.WaitStatus)) {
	for range 200 {
		if !reap(ended) {
			return
		}
		for _, pid := range children() {
			if !not.has(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// children returns the children of this process, or none if this kernel does not list them.
func children() (pids []int) {
	text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err != nil {
		return nil
	}
	for _, child := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(child)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pause is the time between two attempts to kill, which are rare after a while: what still lives then may
// not be signalled, or sleeps in the kernel.
type pause int

func (p *pause) next() time.Duration {
	*p++
	return min(time.Duration(1+*p/100)*time.Millisecond, lookEvery)
}

// resume continues the command, if it is stopped, and what a terminal stops with it: the process group of this
// process. A command may not be stopped itself, since it waits for a stopped process that it has started with vfork.
func resume(command int) {
	all, _ := descendants(os.Getpid(), nil)
	for _, p := range all {
		if p.state == 'T' && (p.pid == command || p.group == unix.Getpgrp()) {
			_ = send(p, unix.SIGCONT)
		}
	}
}

// sinceBoot reads CLOCK_BOOTTIME, which runs while the machine is suspended and is the same for all
// processes.
func sinceBoot() (ns int64) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux has it
	}
	return t.Nano()
}

// reap takes what has become of children that have ended or stopped, and reports whether any child is left.
func reap(ended func(pid int, s unix.WaitStatus)) (left bool) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false // ECHILD
		case pid == 0:
			return true
		default:
			if ended != nil {
				ended(pid, s)
			}
		}
	}
}
