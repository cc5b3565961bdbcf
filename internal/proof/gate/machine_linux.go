package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// whole makes the end of a command's ctx the end of all processes that it has started: it sends a signal to them. A gate among
// them gets SIGTERM, and has a group of its own to end.
func whole(cmd *exec.Cmd, by syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, by) }
	cmd.WaitDelay = 10 * time.Second
}

// own returns the seconds of processor time that this process and those of its descendants that have
// ended have used.
func own() float64 {
	var sum float64
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) == nil {
			sum += float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
		}
	}
	return sum
}

// hertz is the unit of /proc/stat: USER_HZ, which is 100 on every platform of Go's.
const hertz = 100

// busy returns the seconds of processor time that all processes of the machine have used, or 0 if it
// is not known.
func busy() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0
	}
	var sum float64
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		if n, err := strconv.ParseFloat(field, 64); err == nil && i != 3 && i != 4 {
			sum += n
		}
	}
	return sum / hertz
}

// memory returns the bytes that the descendants of this process have for themselves, other than
// pages of files, and whether that is known.
func memory() (bytes int64, known bool) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parents := map[int]int{}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		after := string(text[strings.LastIndexByte(string(text), ')')+1:]) // a name may contain spaces
		if fields := strings.Fields(after); len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	for pid := range parents {
		if descends(pid, os.Getpid(), parents) {
			bytes += anonymous(pid)
		}
	}
	return bytes, true
}

func descends(pid, from int, parents map[int]int) bool {
	for pid > 1 {
		if pid = parents[pid]; pid == from {
			return true
		}
	}
	return false
}

// anonymous returns the resident bytes of a process that are no pages of files.
func anonymous(pid int) int64 {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
