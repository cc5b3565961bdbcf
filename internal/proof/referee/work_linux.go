package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The environment of a command under judgment.
const (
	workEnv  = "REFEREE_DIR"  // the folder of its round
	roleEnv  = "REFEREE_ROLE" // "first" or "second"; "left" for what a command leaves behind
	lastsEnv = "REFEREE_LASTS"

	serverEnv = "REFEREE_SERVER" // set for a server of etcd
)

// longest is for how long an overlap is measured.
const longest = 5 * time.Second

// start is what a command has found when it started.
type start struct {
	Role    string
	Overlap time.Duration // for how long a process of the earlier command still lived; 0: it did not
}

// work is the command: it takes the kernel's lock, says what it has found, leaves processes behind and
// works until its time has passed.
func work(dir string) int {
	lasts, err := time.ParseDuration(os.Getenv(lastsEnv))
	role := os.Getenv(roleEnv)
	if err != nil {
		return fail(err)
	}
	if role == "left" {
		time.Sleep(lasts)
		return 0
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(err)
	}
	found := start{Role: role}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if err != syscall.EWOULDBLOCK { //nolint:errorlint // of the system call
			return fail(err)
		}
		if found.Overlap = max(time.Since(began), time.Microsecond); found.Overlap > longest {
			break // it still lives
		}
	}
	for _, daemon := range []bool{false, true} {
		if err := leave(f, lasts+300*time.Millisecond, daemon); err != nil {
			return fail(err)
		}
	}
	if err := say(dir, found); err != nil {
		return fail(err)
	}
	time.Sleep(lasts)
	return 0
}

// leave starts a process that outlives this one, with the locked file; a daemon has a session of its own.
func leave(f *os.File, lasts time.Duration, daemon bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"=left", lastsEnv+"="+lasts.String())
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: daemon}
	return cmd.Start()
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

// say writes what was found, at once and whole.
func say(dir string, s start) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, s.Role)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "referee: command:", err)
	return 2
}

// killAll kills every process of a round, or of all, by the folder in its environment.
func killAll(dir string) {
	for range 3 {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() {
				continue
			}
			env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
			if err == nil && has(env, workEnv+"="+dir) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// has reports whether an environment has a variable whose value begins so.
func has(env []byte, prefix string) bool {
	for len(env) > 0 {
		n := 0
		for n < len(env) && env[n] != 0 {
			n++
		}
		if string(env[:min(n, len(prefix))]) == prefix {
			return true
		}
		env = env[min(n+1, len(env)):]
	}
	return false
}
