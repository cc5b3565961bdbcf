package procs

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// SlowDisks has each sync to the disk take longer by delay, on those members, until heal is called. It needs
// strace, and members that sync (Options.Fsync). A member that is killed is no longer slow; one that is slow
// must not be paused.
func (c *Cluster) SlowDisks(delay time.Duration, members ...int) (heal func(), err error) {
	var tracers []*exec.Cmd
	heal = func() {
		for _, t := range tracers {
			_ = t.Process.Signal(os.Interrupt) // it leaves the process as it is
			_ = t.Wait()
		}
	}
	for _, i := range members {
		inject := fmt.Sprintf("inject=fdatasync,fsync:delay_enter=%d", delay.Microseconds())
		t := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", inject, "-p", strconv.Itoa(c.Member(i).PID())) //nolint:gosec // the process is ours
		if err := t.Start(); err != nil {
			heal()
			return nil, fmt.Errorf("slow disks: %w", err)
		}
		tracers = append(tracers, t)
	}
	return heal, nil
}
