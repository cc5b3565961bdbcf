// Package doctor has the verb doctor: it makes the checks of internal/doctor, and those of what services keep in a
// namespace, and prints what they have found.
package doctor

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/doctor"
)

// finding is what one check has found.
type finding = doctor.Finding

const (
	levelOK   = doctor.OK
	levelWarn = doctor.Warn
	levelFail = doctor.Fail
)

// check is one check. It returns all that it has found; a check that cannot be made is a finding, too.
type check struct {
	name string
	run  func(context.Context) []finding
}

// examination is one execution of doctor.
type examination struct {
	call   *verb.Call
	client *clientv3.Client
	now    func() time.Time
	slow   time.Duration
	listen time.Duration        // to what processes write, to compare their clocks
	old    int64                // how many revisions are too many to be kept
	sess   *concurrency.Session // of the check "session", or nil
	survey doctor.Survey        // of the check "endpoint"
	reads  doctor.Times         // of the check "majority"
	grants doctor.Grants        // of the check "permissions"
	mute   bool                 // no endpoint answers
	cut    bool                 // nothing in etcd can be read: no etcd, no majority, or no user where users are checked
}

// checks are the checks of the cluster and, if one is named, of a namespace.
func (d *examination) checks() []check {
	all := []check{{"endpoint", d.endpoints}, {"members", d.members}, {"alarm", d.alarms}, {"auth", d.auth},
		{"majority", d.majority}, {"write", d.writes}, {"streams", d.streams}, {"compaction", d.compaction}, {"leases", d.leases}}
	if d.call.Etcd.Namespace == "" {
		return append(all, check{"namespace", func(context.Context) []finding {
			return one(levelWarn, "Add --namespace to examine what the services keep in it; 'etcdkit ls' lists the namespaces.", "not examined")
		}})
	}
	return append(all, check{"permissions", d.permissions}, check{"session", d.session}, check{"sessions", d.sessions},
		check{"clocks", d.clocks},
		check{"keys", d.foreign}, check{"queues", d.queues}, check{"jobs", d.lostRuns}, check{"requests", d.unknownRequests})
}

// Doctor returns the verb doctor.
func Doctor(c *verb.Call) *cobra.Command {
	d := &examination{call: c, now: time.Now, listen: 2 * time.Second, old: doctor.ManyRevisions}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine etcd and a namespace: what is wrong, what it means, what to do",
		Long: `Examine the cluster (each endpoint of --endpoints: whether it is a member of etcd, its certificate, version, leader
and size; whether the endpoints are the members; alarms; whether users are checked; how long a majority takes for a
read and for a write; whether a connection has enough streams; whether old revisions are compacted; how many leases
there are) and, with --namespace, what the services keep in it: what the user may read and write of it, the TTL that
etcd grants and whether it is renewed, live sessions and their clocks, foreign keys, lost runs, jobs that no process
starts, and requests of unknown outcome.

Each finding is OK, NOTE (something is not known), WARN or FAIL. A check that the user may not make, or that etcd
does not answer within --command-timeout, is a finding, and the others are made. doctor opens one session and
closes it, and changes nothing else. The exit code is 0 if nothing has failed, 1 if something has, and 69 if no endpoint answers.`,
		Example: "etcdkit doctor -N payments\netcdkit doctor --endpoints etcd-1:2379,etcd-2:2379,etcd-3:2379 -o json",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.slow <= 0 {
				return exit.Usagef("--slow %v is not positive", d.slow)
			}
			found := d.examine(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return d.report(found)
		},
	}
	cmd.Flags().DurationVar(&d.slow, "slow", 500*time.Millisecond,
		"a member that takes longer to answer is a warning, and a write that takes half of it")
	return cmd
}

// examine makes all checks.
func (d *examination) examine(ctx context.Context) (found []finding) {
	if d.call.Etcd.Namespace != "" {
		if _, err := d.call.Etcd.Space(); err != nil {
			return doctor.Named("namespace", one(levelFail, "Correct --namespace or --prefix.", "%v", err))
		}
	}
	client, err := d.call.Etcd.Client(ctx)
	if err != nil {
		code := exit.CodeOf(err)
		d.mute = code == exit.Unreachable
		return doctor.Named("connection", one(levelFail, cmp.Or(doctor.Mistake(err),
			"Check --endpoints, --cacert, --cert, --key and --user."), "%v", err))
	}
	defer verb.Close(client)
	d.client = client
	defer d.close(ctx)
	p := d.call.Progress()
	defer p.End()
	for _, c := range d.checks() {
		p.Set("examining: %s", c.name)
		if !d.mute && !d.cut && ctx.Err() == nil {
			found = append(found, d.make(ctx, c)...)
		}
	}
	return found
}

// close closes the session.
func (d *examination) close(ctx context.Context) {
	if d.sess != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = d.sess.Close(ctx) // at worst its lease expires
	}
}

// make makes one check, within --command-timeout.
func (d *examination) make(ctx context.Context, c check) []finding {
	ctx, cancel := context.WithTimeout(ctx, d.call.Etcd.Timeout)
	defer cancel()
	return doctor.Named(c.name, c.run(ctx))
}

// report prints the findings, and returns the exit code as an error.
func (d *examination) report(found []finding) error {
	worst := levelOK
	for _, f := range found {
		if f.Level == levelFail || f.Level == levelWarn && worst == levelOK {
			worst = f.Level
		}
	}
	err := d.call.Print(struct {
		output.Form
		Worst    doctor.Level `json:"worst"`
		Findings []finding    `json:"findings"`
	}{output.FormOf("doctor"), worst, found}, func(t *output.Table) {
		width, _ := output.Size(d.call.Std.Out)
		room := width - len(levelWarn) - 2
		for _, f := range found {
			for i, line := range append(output.Wrapped(f.Check+": "+f.Text, room), output.Wrapped(f.Advice, room)...) {
				level := f.Level
				if i > 0 {
					level = ""
				}
				t.Row(level, line)
			}
		}
	})
	switch {
	case err != nil:
		return err
	case d.mute:
		return exit.With(exit.Unreachable, nil)
	case worst == levelFail:
		return exit.With(exit.Failed, nil)
	}
	return nil
}

// one returns a single finding.
func one(l doctor.Level, advice, format string, args ...any) []finding {
	return doctor.One(l, advice, format, args...)
}

// cutShort is the finding of a check that has read n of what it reads one by one when err came.
func cutShort(ctx context.Context, n int, what string, err error) []finding {
	if ctx.Err() != nil && n > 0 {
		return one(levelWarn, "--command-timeout gives each check more time.", "only %d %s could be examined in time", n, what)
	}
	return notMade(what, err)
}

// notMade is the finding of a check that could not be made, or only in part.
func notMade(what string, err error) []finding { return doctor.NotMade(what, err) }
