package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A457: the command knows zones where the system has none, as in an image from scratch: here in an empty root.
func TestZonesWithoutSystem(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(root, "etcdkit"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(zone string) (status int, output string) {
		cmd := exec.CommandContext(t.Context(), "/etcdkit", "jobs", "run", "-N", "ops", "report", "--cron", "30 2 * * *", "--zone", zone, "--endpoints", "127.0.0.1:1", "--", "/etcdkit")
		cmd.Env, cmd.Dir = []string{}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		if uid := os.Getuid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Skipf("no program can be run in another root: %v", err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	unknown, said := run("Europe/Nowhere")
	known, output := run("Europe/Berlin")
	if known == unknown {
		t.Errorf("with a zone that exists it says %q, without %q", output, said)
	}
}
