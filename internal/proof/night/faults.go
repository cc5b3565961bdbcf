package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fault is what befalls the fleet in a night, and how docs lead from it to its remedy. In its texts, NAME is the name and
// NODE the process that it befalls.
type fault struct {
	name  string
	kind  string // of the name that it befalls, or "" if it befalls all
	limit int    // of that name, if it is a semaphore
	turn  int    // below 0 if it restarts a process, above if it touches all names
	apart bool   // -check causes it alone

	cause func(ctx context.Context, n *night, i item) error
	fires []string // alerts that docs/observability.md names; without NAME any name counts
	may   []string // alerts that come with it or with its remedy

	look   []string // arguments of etcdkit: the first step of the page, if it is one of the command
	shows  string   // what it prints then
	page   string   // of the console
	has    string   // what that has, as JSON
	asks   string   // an expression for Prometheus, which has series then
	remedy string   // what the pages say
	mend   func(ctx context.Context, n *night, i item) error
}

// faults are those of which a night has some.
var faults = []fault{
	{
		name: "a holder hangs", kind: "semaphore", limit: narrow,
		cause: func(ctx context.Context, n *night, i item) error {
			return n.fleet.order(ctx, i.homes[0], "hold", i.name)
		},
		fires: []string{"EtcdkitOldestWait NAME", "EtcdkitLimitSaturated NAME"},
		may:   []string{"EtcdkitPermitsLost NAME", "EtcdkitWaitsAboveObjective NAME"},
		look:  []string{"show", "semaphore/NAME"}, shows: "full export of all customers",
		page: "queue?name=semaphore/NAME", has: "full export of all customers",
		remedy: "evict the holder: etcdkit evict semaphore/NAME TOKEN --force",
		mend:   evict,
	},
	{
		name: "a queue is left paused", kind: "semaphore", limit: narrow,
		cause: func(ctx context.Context, n *night, i item) error {
			return n.setLimit(ctx, i.String(), "0", "for the migration of tonight")
		},
		fires: []string{"EtcdkitPausedQueue NAME"},
		look:  []string{"limit", "semaphore/NAME"}, shows: "0",
		page: "changes", has: "for the migration of tonight",
		remedy: "etcdkit limit semaphore/NAME 2",
		mend:   restoreLimit,
	},
	{
		name: "a limit is lowered by mistake", kind: "semaphore", limit: wide,
		cause: func(ctx context.Context, n *night, i item) error {
			return n.setLimit(ctx, i.String(), "1", "the database allows 10")
		},
		fires: []string{"EtcdkitLimitSaturated NAME", "EtcdkitWaitsAboveObjective NAME"},
		may:   []string{"EtcdkitOldestWait NAME"},
		look:  []string{"show", "semaphore/NAME"}, shows: "limit 1",
		page: "changes", has: "the database allows 10",
		remedy: "etcdkit limit semaphore/NAME 8, as before",
		mend:   restoreLimit,
	},
	{
		name: "a job fails each night", kind: "job",
		cause: func(_ context.Context, n *night, i item) error { return os.Remove(filepath.Join(n.files, i.name)) },
		fires: []string{"EtcdkitRunsFailed NAME", "EtcdkitJobUnsuccessful NAME"},
		look:  []string{"jobs", "history", "NAME"}, shows: "no such file",
		page: "job?name=NAME", has: "no such file",
		remedy: "create the file that the error names",
		mend:   func(_ context.Context, n *night, i item) error { return n.writeFile(i.name) },
	},
	{
		name: "a job has no process", kind: "job",
		cause: abandon,
		fires: []string{"EtcdkitJobGone NAME"},
		look:  []string{"jobs", "history", "NAME"}, shows: "node-",
		page: "job?name=NAME", has: "node-",
		remedy: "start a process that has the job: restart those of its history",
		mend:   restartHomes, may: restarts,
	},
	{
		name: "a run hangs", kind: "job",
		cause: func(_ context.Context, n *night, i item) error { return n.writeFile(i.name + hangs) },
		fires: []string{"EtcdkitRunOutlastsPeriod NAME"},
		may:   []string{"EtcdkitRunsLost NAME", "EtcdkitRunsFailed NAME", "EtcdkitJobLostRun NAME", "EtcdkitJobUnsuccessful NAME", "EtcdkitJobLate NAME"},
		look:  []string{"jobs"}, shows: "NAME *running",
		page: "jobs?show=running", has: "NAME",
		remedy: "etcdkit jobs unlock NAME, with --yes and the --token of 'etcdkit jobs history NAME -o json' where there is no terminal",
		mend:   unlock,
	},
	{
		name: "an election has no candidates", kind: "election",
		cause: abandon,
		fires: []string{"EtcdkitElectionGone NAME"},
		asks:  `last_over_time(etcdkit_active{etcdkit_op="campaign",etcdkit_name="NAME",instance="NODE"}[1h])`,
		page:  "elections", has: "shard",
		remedy: "restart the processes that campaigned: etcdkit_active has them",
		mend:   restartHomes, may: restarts,
	},
	{
		name: "one process uses up a rate", kind: "rate",
		cause: func(ctx context.Context, n *night, i item) error {
			return n.fleet.order(ctx, i.homes[0], "flood", i.name)
		},
		fires: []string{"EtcdkitRateExceeded NAME"},
		look:  []string{"show", "rate/NAME"}, shows: "NODE",
		page: "queue?name=rate/NAME", has: "NODE",
		asks:   `rate(etcdkit_rate_calls_total{etcdkit_name="NAME",instance="NODE"}[1m]) > 5`,
		remedy: "restart NODE, or mend its loop; raising the rate would help NODE alone",
		mend:   func(ctx context.Context, n *night, i item) error { return n.fleet.restart(ctx, i.homes[0]) }, may: restarts,
	},
	{
		name: "another program writes below the prefix", kind: "semaphore", limit: narrow,
		cause: func(ctx context.Context, n *night, i item) error {
			_, err := n.client.Put(ctx, n.foreign(i), "deploy.sh on ci-4")
			return err
		},
		fires: []string{"EtcdkitForeignKeys NAME"},
		look:  []string{"doctor"}, shows: `semaphore/NAME: 1 foreign key: "\S+/deploy-lock"`,
		page: "doctor", has: "semaphore/NAME/deploy-lock",
		remedy: "read the key's value with etcdctl to find the program, and delete the key",
		mend: func(ctx context.Context, n *night, i item) error {
			_, err := n.client.Delete(ctx, n.foreign(i))
			return err
		},
	},
	{
		name: "a clock is ahead", kind: "node", turn: -1,
		cause: func(ctx context.Context, n *night, i item) error {
			return n.fleet.turn(ctx, i.name, 5*time.Second)
		},
		fires: []string{"EtcdkitClocksDiffer"},
		may:   restarts,
		page:  "sessions?show=clock", has: "NAME",
		remedy: "set the clock of NAME",
		mend:   func(ctx context.Context, n *night, i item) error { return n.fleet.turn(ctx, i.name, 0) },
	},
	{
		name: "a process is killed during requests", kind: "store", turn: -1, apart: true,
		cause: func(ctx context.Context, n *night, i item) error {
			if err := n.fleet.order(ctx, i.homes[0], "begin", i.name); err != nil {
				return err
			}
			if err := n.fleet.kill(ctx, i.homes[0]); err != nil {
				return err
			}
			return n.fleet.order(ctx, i.homes[1], "repeat", i.name)
		},
		fires: []string{"EtcdkitUnknownRequests NAME", "EtcdkitRequestsUnknown NAME"},
		may: append([]string{"EtcdkitUnknownRequests", "EtcdkitRequestsUnknown", "EtcdkitJobLostRun", "EtcdkitJobUnsuccessful", "EtcdkitElectionLeaderless",
			"EtcdkitWaitsAboveObjective", "EtcdkitOldestWait", "EtcdkitJobNotStarted"}, restarts...),
		look: []string{"requests", "list", "NAME", "--state", "unknown"}, shows: "invoice of night-1",
		page: "store?name=NAME&only=refused", has: "invoice of night-1",
		remedy: "find out what was done, then etcdkit requests resolve NAME REF",
		mend:   resolve,
	},
	{
		name: "etcd is near its quota", turn: 1, apart: true,
		cause: fill,
		fires: []string{"EtcdkitNearQuota", "EtcdkitRequestsNearQuota"},
		may:   append([]string{"EtcdkitErrors", "EtcdkitAttemptsLost", "EtcdkitUnknownRequests", "EtcdkitRequestsUnknown"}, restarts...),
		look:  []string{"doctor"}, shows: "of a quota of",
		page: "doctor", has: "of a quota of",
		remedy: "compact and defragment: docs/runbook.md, Space",
		mend:   makeSpace,
	},
}

// restarts are alerts that a process causes when it ends with what it does.
var restarts = []string{"EtcdkitProcessDied", "EtcdkitPermitsLost", "EtcdkitSessionLost", "EtcdkitRunsLost", "EtcdkitRunsFailed", "EtcdkitJobLate"}

// text replaces NAME and NODE.
func (i item) text(s string) string {
	return strings.NewReplacer("NAME", i.name, "NODE", i.homes[0]).Replace(s)
}

// texts is text for all of a list.
func (i item) texts(all []string) (out []string) {
	for _, s := range all {
		out = append(out, i.text(s))
	}
	return out
}

// abandon has the processes of a name not use it any more.
func abandon(ctx context.Context, n *night, i item) error {
	return errors.Join(n.fleet.order(ctx, i.homes[0], "leave", i.name), n.fleet.order(ctx, i.homes[1], "leave", i.name))
}

func restartHomes(ctx context.Context, n *night, i item) error {
	return errors.Join(n.fleet.restart(ctx, i.homes[0]), n.fleet.restart(ctx, i.homes[1]))
}

func restoreLimit(ctx context.Context, n *night, i item) error {
	_, err := n.command(ctx, "limit", i.String(), fmt.Sprint(i.limit))
	return err
}

// evict ends the permit that is held.
func evict(ctx context.Context, n *night, i item) error {
	out, err := n.command(ctx, "show", i.String(), "-o", "json")
	if err != nil {
		return err
	}
	var queue struct{ Holders []struct{ Token string } }
	if err := json.Unmarshal([]byte(out), &queue); err != nil {
		return err
	}
	for _, h := range queue.Holders {
		if _, err := n.command(ctx, "evict", i.String(), h.Token, "--force", "--yes", "--reason", "it hangs"); err != nil {
			return err
		}
	}
	return nil
}

// resolve records for each request of unknown outcome that it has failed.
func resolve(ctx context.Context, n *night, i item) error {
	stores := map[string]bool{i.name: true} // the process was killed during others, too
	for _, one := range n.names {
		if one.kind == "store" && one.at(i.homes[0]) {
			stores[one.name] = true
		}
	}
	for store := range stores {
		_, err := n.command(ctx, "requests", "resolve", store, "--state", "unknown", "--failed", "the server was restarted", "--yes")
		if err != nil && !strings.Contains(err.Error(), "no request of unknown outcome") {
			return err
		}
	}
	return nil
}

// foreign is a key in the range of a queue that no release of etcdkit writes.
func (n *night) foreign(i item) string {
	return n.sess.NamespacePrefix() + i.kind + "/" + i.name + "/deploy-lock"
}

// fill stores a text again and again, until etcd is near its quota.
func fill(ctx context.Context, n *night, _ item) error {
	state := strings.Repeat("state of the backup ", 20_000)
	for {
		st, err := n.client.Status(ctx, n.client.Endpoints()[0])
		if err != nil || float64(st.DbSize) > 0.92*quota {
			return err
		}
		for range 5 {
			if _, err := n.client.Put(ctx, "/backup/state", state); err != nil {
				return err
			}
		}
		sleep(ctx, 200*time.Millisecond) // etcd counts what it has committed, ten times a second
	}
}

// makeSpace does what docs/runbook.md has for one member.
func makeSpace(ctx context.Context, n *night, _ item) error {
	resp, err := n.client.Get(ctx, "/backup/state", clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if _, err := n.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	if _, err := n.client.Defragment(ctx, n.client.Endpoints()[0]); err != nil {
		return err
	}
	_, err = n.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}

// unlock ends the run of a job that is active. There is none if the remedy of another fault has restarted its process.
func unlock(ctx context.Context, n *night, i item) error {
	out, err := n.command(ctx, "jobs", "history", i.name, "-o", "json")
	if err != nil {
		return err
	}
	var history struct {
		Runs []struct{ State, Token string }
	}
	if err := json.Unmarshal([]byte(out), &history); err != nil {
		return err
	}
	for _, r := range history.Runs {
		if r.State == "running" && r.Token != "" {
			_, err := n.command(ctx, "jobs", "unlock", i.name, "--reason", "it hangs", "--token", r.Token, "--yes")
			return err
		}
	}
	return nil
}
