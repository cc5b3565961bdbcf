package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// V26: the commands that the program prints do what it says, as they are printed, while the program runs: the order
// that was charged gets a receipt with its type, and the other one is charged. Without a terminal they have the answer
// to their question.
func TestPrintedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	s := newShop(t)
	dir := t.TempDir()
	run := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(s.command)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	printed := map[string]string{}
	for line := range strings.Lines(commands(s.etcd.Endpoints(), &net.TCPAddr{})) {
		for _, kind := range []string{"export", "list", "echo", "--status", "--not-done"} {
			if strings.HasPrefix(line, "  ") && strings.Contains(line, kind) {
				printed[kind] = strings.TrimSpace(line) + "\n"
			}
		}
	}
	for order, does := range map[string]string{"order-17": lateAfter, "order-18": late} {
		s.plan[order] = []string{does}
		for _, want := range []int{http.StatusGatewayTimeout, http.StatusConflict} {
			if status, body := s.sends(order); status != want {
				t.Fatalf("%s: %d %s, want %d", order, status, body, want)
			}
		}
		if out := run(printed["export"] + printed["list"]); !strings.Contains(out, order) {
			t.Fatalf("the list does not have %s:\n%s", order, out)
		}
		var all struct {
			Requests []struct {
				Ref      string
				Revision json.Number
			}
		}
		if err := json.Unmarshal(s.etcdkit("list", "payments", "--state", "unknown", "-o", "json"), &all); err != nil || len(all.Requests) != 1 {
			t.Fatalf("%v %+v", err, all)
		}
		r, resolve := all.Requests[0], printed["--not-done"]
		if does == lateAfter {
			resolve = printed["echo"] + printed["--status"]
		}
		run(printed["export"] + strings.TrimSpace(strings.ReplaceAll(resolve, "REF", r.Ref)) + " --yes --revision " + r.Revision.String())
		if status, body := s.sends(order); status != http.StatusCreated || s.book[order] != 1 {
			t.Fatalf("%s: %d %s, charged %d times", order, status, body, s.book[order])
		}
		if out := s.etcdkit("get", "payments", r.Ref, "--show-result"); !strings.Contains(string(out), "Content-Type: application/json") {
			t.Fatalf("%s: the receipt has no type:\n%s", order, out)
		}
	}
}
