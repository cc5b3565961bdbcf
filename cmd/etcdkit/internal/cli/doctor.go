package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// level is how bad a finding is.
type level string

const (
	levelOK   level = "OK"
	levelWarn level = "WARN"
	levelFail level = "FAIL"
)

// finding is what one check has found.
type finding struct {
	Level  level  `json:"level"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"` // what it means and what to do; "" if OK
}

// check is one check. It returns all that it has found; a check that cannot be made is a finding, too.
type check struct {
	name string
	run  func(context.Context) []finding
}

// doctor is one examination.
type doctor struct {
	app    *app
	client *clientv3.Client
	now    func() time.Time
	slow   time.Duration
	old    int64                // how many revisions are too many to be kept
	sess   *concurrency.Session // of the check "session", or nil
	mute   bool                 // no endpoint answers
	cut    bool                 // nothing in etcd can be read: no majority answers, or no user is given where users are checked
}

// checks are the checks of the cluster and, if one is named, of a namespace.
func (d *doctor) checks() []check {
	all := []check{{"endpoint", d.endpoints}, {"auth", d.auth}, {"majority", d.majority}, {"compaction", d.compaction}, {"leases", d.leases}}
	if d.app.etcd.namespace == "" {
		return append(all, check{"namespace", func(context.Context) []finding {
			return one(levelWarn, "Add --namespace to examine what the services keep in it; 'etcdkit ls' lists the namespaces.", "not examined")
		}})
	}
	return append(all, check{"session", d.session}, check{"sessions", d.sessions}, check{"clocks", d.clocks},
		check{"queues", d.queues}, check{"jobs", d.lostRuns}, check{"requests", d.unknownRequests})
}

func (a *app) doctor() *cobra.Command {
	d := &doctor{app: a, now: time.Now, old: manyRevisions}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine etcd and a namespace: what is wrong, what it means, what to do",
		Long: `Examine the cluster (each endpoint of --endpoints, its version, leader, alarms and size; whether users are
checked, a majority answers, old revisions are compacted; how many leases there are) and, with --namespace,
what the services keep in it: whether the user may use it, the TTL that etcd grants, live sessions and their
clocks, foreign keys, lost runs, jobs that no process starts, and requests of unknown outcome.

Each finding is OK, WARN or FAIL. A check that the user may not make, or that etcd does not answer within
--command-timeout, is a finding, and the others are made. doctor opens one session and closes it, and
changes nothing else. The exit code is 0 if nothing has failed, 1 if something has, and 69 if no endpoint answers.`,
		Example: "etcdkit doctor -N payments\netcdkit doctor --endpoints etcd-1:2379,etcd-2:2379,etcd-3:2379 -o json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.slow <= 0 {
				return usageError{fmt.Errorf("--slow %v is not positive", d.slow)}
			}
			found := d.examine(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return d.report(found)
		},
	}
	cmd.Flags().DurationVar(&d.slow, "slow", 500*time.Millisecond, "a member that takes longer to answer is a warning")
	return cmd
}

// examine makes all checks.
func (d *doctor) examine(ctx context.Context) (found []finding) {
	if d.app.etcd.namespace != "" {
		if _, err := d.app.etcd.space(); err != nil {
			return []finding{{levelFail, "namespace", err.Error(), "Correct --namespace or --prefix."}}
		}
	}
	client, err := d.app.etcd.client(ctx)
	if err != nil {
		code, _ := classify(err)
		d.mute = code == exitUnreachable
		return []finding{{levelFail, "connection", err.Error(), "Check --endpoints, --cacert, --cert, --key and --user."}}
	}
	defer client.Close()
	d.client = client
	defer d.close(ctx)
	p := d.app.progress()
	defer p.end()
	for _, c := range d.checks() {
		p.set("examining: %s", c.name)
		if !d.mute && !d.cut && ctx.Err() == nil {
			found = append(found, d.make(ctx, c)...)
		}
	}
	return found
}

// close closes the session.
func (d *doctor) close(ctx context.Context) {
	if d.sess != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = d.sess.Close(ctx) // at worst its lease expires
	}
}

// make makes one check, within --command-timeout.
func (d *doctor) make(ctx context.Context, c check) []finding {
	ctx, cancel := context.WithTimeout(ctx, d.app.etcd.timeout)
	defer cancel()
	found := c.run(ctx)
	for i := range found {
		found[i].Check = c.name
	}
	return found
}

// report prints the findings, and returns the exit code as an error.
func (d *doctor) report(found []finding) error {
	worst := levelOK
	for _, f := range found {
		if f.Level == levelFail || f.Level == levelWarn && worst == levelOK {
			worst = f.Level
		}
	}
	err := d.app.print(struct {
		schema
		Worst    level     `json:"worst"`
		Findings []finding `json:"findings"`
	}{schemaOf("doctor"), worst, found}, func(t *table) {
		for _, f := range found {
			t.row(f.Level, f.Check+": "+f.Text)
			if f.Advice != "" {
				t.row("", f.Advice)
			}
		}
	})
	switch {
	case err != nil:
		return err
	case d.mute:
		return &exitError{code: exitUnreachable}
	case worst == levelFail:
		return &exitError{code: exitFailed}
	}
	return nil
}

// one returns a single finding.
func one(l level, advice, format string, args ...any) []finding {
	return []finding{{Level: l, Text: fmt.Sprintf(format, args...), Advice: advice}}
}

// cutShort is the finding of a check that has read n of what it reads one by one when err came.
func cutShort(ctx context.Context, n int, what string, err error) []finding {
	if ctx.Err() != nil && n > 0 {
		return one(levelWarn, "--command-timeout gives each check more time.", "only %d %s could be examined in time", n, what)
	}
	return notMade(what, err)
}

// notMade is the finding of a check that could not be made, or only in part.
func notMade(what string, err error) []finding {
	switch code, next := classify(err); {
	case noUser(err):
		return one(levelWarn, next, "%s: %v", what, err)
	case code == exitDenied:
		return one(levelWarn, "The user may not read it; a user with more permissions can make this check.", "%s: %v", what, err)
	case code == exitUnreachable || errors.Is(err, context.DeadlineExceeded):
		return one(levelFail, "etcd did not answer in time; --command-timeout waits longer.", "%s: %v", what, err)
	}
	return one(levelFail, "", "%s: %v", what, err)
}
