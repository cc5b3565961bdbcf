//go:build linux

// Runbook executes docs/runbook.md on three real members of etcd with TLS and users, while services
// work under a limit: the commands as they are on the page, by bash, with etcdctl, etcdutl and etcdkit.
//
//	make runbook
//
// Only this differs from what an operator does: ssh and scp reach folders in place of hosts, systemctl
// starts and stops processes, addresses are of the loopback network, which certificates name too, and the
// quota is 64 MiB.
//
// A run fails if a command fails, the limit is exceeded by the count of the services themselves, or a
// session is lost in a section that says that none is. Linux only.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The versions of etcd that the page names.
const oldLine, newLine = "v3.6.16", "v3.7.3"

func main() {
	page := flag.String("page", "docs/runbook.md", "the page")
	old := flag.String("old", "bin/etcd36", "the server of "+oldLine)
	latest := flag.String("new", "bin/etcd37", "the server of "+newLine)
	tools := flag.String("tools", "bin", "the folder of etcdctl, etcdutl and etcdkit")
	only := flag.String("until", "", "the title of the last section to execute")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *page, *only, map[string]string{oldLine: *old, newLine: *latest}, *tools); err != nil {
		fmt.Fprintln(os.Stderr, "runbook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, page, until string, servers map[string]string, tools string) (err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	all, err := sections(string(text))
	if err != nil {
		return err
	}
	for i, s := range all {
		if s.title == until {
			all = all[:i+1]
		}
	}
	root, err := os.MkdirTemp("", "runbook-")
	if err != nil {
		return err
	}
	for version, binary := range servers {
		if servers[version], err = filepath.Abs(binary); err != nil {
			return err
		}
	}
	var paths []string
	for _, tool := range []string{"etcdctl", "etcdutl", "etcdkit"} {
		at, err := filepath.Abs(filepath.Join(tools, tool))
		if err != nil {
			return err
		}
		paths = append(paths, at)
	}
	h, err := newHosts(root, servers, paths)
	if err != nil {
		return err
	}
	r := &runner{hosts: h, fleet: &fleet{hosts: h}, sections: all, out: os.Stdout}
	err = r.run(ctx)
	if err == nil {
		return os.RemoveAll(root)
	}
	return fmt.Errorf("%w\n%s\nthe hosts and logs are in %s", err, tail(filepath.Join(root, "output"), 4096), root)
}

// runner executes the script and answers its lines.
type runner struct {
	hosts    *hosts
	fleet    *fleet
	sections []section
	out      io.Writer

	at    *section
	begun time.Time
	most  int64 // the greatest token before the present section
	bad   []error
}

func (r *runner) run(ctx context.Context) error {
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	defer ours.Close()
	text := strings.NewReplacer(
		"10.0.0.", r.hosts.network,
		"quota-backend-bytes: 8589934592", "quota-backend-bytes: 67108864",
		"subjectAltName=%s", "subjectAltName=IP:127.0.0.1,%s", // from where all members call each other here
	).Replace(script(r.sections))
	file := filepath.Join(r.hosts.root, "script")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(r.hosts.root, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	bash := exec.CommandContext(ctx, "bash", "-c", `exec 9<&3 3<&-; source "$0"`, file)
	bash.Dir, bash.Env, bash.Stdout, bash.Stderr = r.hosts.root, r.hosts.environment(), output, output
	bash.ExtraFiles = []*os.File{theirs}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGTERM) }
	if err := bash.Start(); err != nil {
		return err
	}
	_ = theirs.Close()
	defer r.end()
	fmt.Fprintln(r.out, "section | seconds | grants | longest time without one | sessions lost")
	for said := bufio.NewScanner(ours); said.Scan(); {
		answer := "ok"
		if err := r.obey(ctx, said.Text()); err != nil {
			r.bad, answer = append(r.bad, err), "failed"
		}
		if _, err := fmt.Fprintln(ours, answer); err != nil {
			break
		}
	}
	if err := bash.Wait(); err != nil {
		title := "the beginning"
		if r.at != nil {
			title = r.at.title
		}
		r.bad = append(r.bad, fmt.Errorf("section %q: a command has failed: %w", title, err))
	}
	return errors.Join(r.bad...)
}

// obey acts on a line of the script: the section that begins or ends, or a verb of systemctl for the services.
func (r *runner) obey(ctx context.Context, said string) error {
	verb, title, _ := strings.Cut(said, " ")
	switch verb {
	case "begin":
		for i := range r.sections {
			if r.sections[i].title == title {
				r.at = &r.sections[i]
			}
		}
		r.begun = time.Now()
		fmt.Fprintf(os.Stderr, "runbook: %s\n", title)
		if r.at.fill {
			return fill(ctx, r.hosts)
		}
		return nil
	case "end":
		// What a section has broken shows at the next renewal, within a third of the TTL.
		if r.fleet.stop != nil {
			time.Sleep(5 * time.Second)
		}
		r.bad = append(r.bad, r.judge()...)
		return nil
	}
	return r.fleet.run(verb)
}

// judge compares what the services have seen in a section with what the page says.
func (r *runner) judge() (errs []error) {
	s := r.fleet.take()
	fmt.Fprintf(r.out, "%s | %.0f | %d | %s | %d\n", r.at.title, time.Since(r.begun).Seconds(), s.grants, s.gap.Round(10*time.Millisecond), s.lost)
	if s.exceeded > 0 {
		errs = append(errs, fmt.Errorf("section %q: the limit was exceeded %d times", r.at.title, s.exceeded))
	}
	if r.at.keeps && s.lost > 0 {
		errs = append(errs, fmt.Errorf("section %q: %d sessions were lost: %v", r.at.title, s.lost, s.causes))
	}
	if r.fleet.stop != nil && s.grants == 0 {
		errs = append(errs, fmt.Errorf("section %q: nothing was granted", r.at.title))
	}
	if r.at.title == restore && s.least <= r.most {
		errs = append(errs, fmt.Errorf("section %q: a token of %d was given after one of %d", r.at.title, s.least, r.most))
	}
	r.most = max(r.most, s.most)
	return errs
}

// end ends what the page has started.
func (r *runner) end() {
	if r.fleet.stop != nil {
		if err := r.fleet.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "runbook: stop the services:", err)
		}
	}
	for _, m := range []string{"m1", "m2", "m3"} {
		text, err := os.ReadFile(r.hosts.path(m, "pid"))
		var pid int
		if _, e := fmt.Sscan(string(text), &pid); err == nil && e == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// pair returns two connected sockets.
func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	mine := os.NewFile(uintptr(fds[0]), "ours")
	defer mine.Close()
	ours, err = net.FileConn(mine)
	return ours, os.NewFile(uintptr(fds[1]), "theirs"), err
}

// tail returns the end of a file.
func tail(file string, bytes int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-bytes):])
}
