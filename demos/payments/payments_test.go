package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main, childEnv) }

// published are metrics that scrapes of a run with -metrics show: of the state in etcd, and of what a process reports.
var published = []string{
	`etcdkit_requests\{etcdkit_kind="store",etcdkit_name="payments",etcdkit_namespace="payments-\w+",etcdkit_state="done"\} [1-9]`,
	`etcdkit_begin_duration_seconds_count\{.*instance="[^"]+"\} [1-9]`,
}

// run is a run in this process; servers and provider are processes of their own.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	return progtest.Run(t, parseFlags, demonstrate, published, args...)
}

func charged(r report) (orders, charges int) {
	for _, t := range r.Rows {
		orders, charges = orders+t.Orders, charges+t.Orders*t.Charges
	}
	return orders, charges
}

// The short form, without what only takes time.
func TestPayments(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for leases of servers that were killed: 20 s")
	}
	t.Parallel()
	const only = "refused|wait$|out of service|client|body|server killed, |leader|no guard|each process|marker, store"
	o := run(t, "-orders", "4", "-only", only, "-metrics", "127.0.0.1:0")
	if !o.OK || len(o.Violations) > 0 || len(o.Skipped) > 0 || len(o.Phases) != 8 || len(o.Others) != 3 {
		t.Errorf("%d phases, %d other ways, skipped %q: %q", len(o.Phases), len(o.Others), o.Skipped, o.Violations)
	}
	for _, r := range o.Phases {
		if orders, charges := charged(r); orders == 0 || charges != orders {
			t.Errorf("%s: %d orders, %d charges", r.Name, orders, charges)
		}
	}
	for _, r := range o.Others {
		if orders, charges := charged(r); charges <= orders || len(r.Wrong) == 0 {
			t.Errorf("%s: %d orders, %d charges: the experiment shows nothing", r.Name, orders, charges)
		}
	}
}

// On an etcd of the user's own nothing is left, and no member is stopped.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	etcd := progtest.Etcd(t, "/payments/")
	o := run(t, etcd.Flags("-orders", "2", "-only", "refused|leader|majority")...)
	if !o.OK || len(o.Phases) != 1 || len(o.Skipped) != 2 {
		t.Errorf("%+v", o)
	}
}

// TestFrame: the program as its user runs it.
func TestFrame(t *testing.T) { progtest.Frame(t, "payments") }

func TestFlags(t *testing.T) {
	t.Parallel()
	progtest.Flags(t, parseFlags, map[string]bool{
		"":             true,
		"-orders 1":    true,
		"-orders 0":    false,
		"-ttl 2s":      true,
		"-ttl 1s":      false,
		"-ttl 2500ms":  false,
		"-timeout 0s":  false,
		"-only marker": true,
		"-only (":      false,
		"more":         false,
	})
}

// TestReadme: each row and each remark in the README's output is one that the program prints.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, output, _ := strings.Cut(string(page), "$ make demo-payments\n")
	output, _, _ = strings.Cut(output, "```")
	all := append(phases(), others()...)
	o := outcome{OK: true, Servers: servers, Copies: copies, Phases: []report{{}}, Others: []report{{}}}
	var printed bytes.Buffer
	o.Write(&printed)
	rows := 0
	for line := range strings.Lines(output) {
		name := strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "      "), strings.HasPrefix(line, "  …"), strings.HasPrefix(line, "elapsed"), name == "":
			continue
		case strings.HasPrefix(line, "  "):
			if name = strings.TrimSpace(string([]rune(name)[:42])); name != "" {
				rows++
				if !slices.ContainsFunc(all, func(p phase) bool { return p.Name == name }) {
					t.Errorf("the README has a row %q, and the program none", name)
				}
			}
		case !strings.Contains(printed.String(), line):
			t.Errorf("the README has the line %q, and the program does not print it", line)
		}
	}
	if rows < len(phases()) {
		t.Errorf("the README has %d rows, want those of all %d phases at least", rows, len(phases()))
	}
}
