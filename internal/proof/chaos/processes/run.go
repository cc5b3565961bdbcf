package processes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// servers is the number of servers.
const servers = 3

// Config says what to run.
type Config struct {
	Binary   string   // of the etcd server
	Beside   string   // another build of this program, such as a former release's: see client.build; none if empty
	Env      []string // of its processes, in addition to our own
	Dir      string   // for data, logs and histories: new and short, for it holds a socket
	Seed     chaos.Seed
	Duration time.Duration // of the faults, after the stopped leader was seen
	Clients  int           // processes; defaults to 4
	Sessions int           // of each client; defaults to 4
	Rate     int           // greatest number of operations per second; defaults to 120
	Nemeses  []string      // names; defaults to all
	// Stops is how often a leader is stopped at the beginning, at most, until a
	// lease ends early. Defaults to 20.
	Stops int
	TTL   time.Duration // of sessions; defaults to 5 s
	// Progress gets lines about the progress of the run. Defaults to none.
	Progress func(format string, args ...any)
}

// Result is what a run has left.
type Result struct {
	Version string // of the servers
	History *history.History
	Report  *check.Report
	Early   []Early
	Pauses  Pauses
	Kills   Kills
	Losses  Losses
	Stops   int64 // leaders that were stopped beyond the TTL, and continued
	Beside  int   // client processes of the other build
}

// run is one run.
type run struct {
	Config
	cluster  *procs.Cluster
	recorder *history.Recorder
	tap      *history.Tap
	env      *chaos.Env
	control  *Control
	socket   string
	clients  []*client
	life     context.Context
	required []string // effects that the run must contain, once at least

	pauses atomic.Int64 // of clients, so far

	proxy    *procs.Proxy // nil unless a nemesis needs it
	proxying sync.Mutex   // held while a nemesis has it

	mu    sync.Mutex
	taken [servers]bool
}

// Run starts servers and clients, stops leaders until a lease ends early, lets all
// nemeses strike, mends everything, and judges. It returns an error only if there is
// no run to judge.
func Run(ctx context.Context, c Config) (*Result, error) {
	c.Clients, c.Sessions, c.Rate = cmp.Or(c.Clients, 4), cmp.Or(c.Sessions, 4), cmp.Or(c.Rate, 120)
	c.Stops, c.TTL = cmp.Or(c.Stops, 20), cmp.Or(c.TTL, 5*time.Second)
	if c.Nemeses == nil {
		c.Nemeses = Nemeses()
	}
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	life, end := context.WithCancel(ctx)
	defer end()
	r := &run{Config: c, recorder: history.NewRecorder(), socket: filepath.Join(c.Dir, "control"), life: life}
	defer r.close()
	if err := r.start(); err != nil {
		return nil, err
	}
	version, err := r.cluster.Version(life)
	if err != nil {
		return nil, err
	}
	r.note("etcd %s: %d servers, %d clients with %d sessions each, seed %d", version, servers, c.Clients, c.Sessions, c.Seed)
	r.settings(version)

	watching, stop := context.WithCancel(life)
	var watchers sync.WaitGroup
	watchers.Go(func() { r.watchLeaders(watching) })
	watchers.Go(func() { r.tellProgress(watching) })
	if slices.Contains(c.Nemeses, StopLeader) {
		err = r.provoke()
	}
	if err == nil {
		err = extend(c.Duration, r.lacking, r.strikeAll)
	}
	stop()
	watchers.Wait()
	if err != nil {
		return nil, err
	}
	for _, f := range r.quiescencePhase() {
		r.recorder.Finding("left", false, f)
	}
	if err := life.Err(); err != nil {
		return nil, err
	}
	return r.judge(version)
}

// judge counts what is to be counted, makes it part of the history, and judges that.
func (r *run) judge(version string) (*Result, error) {
	h, err := r.history()
	if err != nil {
		return nil, err
	}
	res := &Result{Version: version, Beside: r.besides(), Early: earlyEnds(h), Pauses: longPauses(h, r.TTL), Kills: killsInRequests(h), Losses: losses(h, r.TTL, r.behind), Stops: h.Counts()[leadersStopped]}
	r.recorder.Count(earlyDeletions, int64(len(res.Early)))
	r.recorder.Count(permitsOutlived, int64(res.Pauses.Permits))
	r.recorder.Count(attemptsKilled, int64(res.Kills.Attempts))
	for _, used := range res.Pauses.Used {
		r.recorder.Finding("paused", false, used)
	}
	for _, lost := range res.Losses.Unexplained {
		r.recorder.Finding("lost", false, lost)
	}
	if res.History, err = r.history(); err != nil {
		return nil, err
	}
	checkers, err := check.Suite(res.History)
	if err != nil {
		return nil, err
	}
	res.Report = check.Judge(res.History, checkers...)
	return res, nil
}

// start starts everything.
func (r *run) start() (err error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.life, time.Minute)
	defer cancel()
	if r.cluster, err = procs.Start(ctx, procs.Options{
		Binary: r.Binary, Env: r.Env, Dir: r.Dir, Members: servers, Fsync: slices.Contains(r.Nemeses, SlowDisks),
		HeartbeatInterval: 50 * time.Millisecond, ElectionTimeout: 500 * time.Millisecond,
	}); err != nil {
		return err
	}
	if r.proxied() {
		if r.proxy, err = r.cluster.StartProxy(ctx); err != nil {
			return err
		}
	}
	if r.env, err = chaos.Attach(chaos.AttachConfig{Seed: r.Seed, Recorder: r.recorder, Log: r.note}); err != nil {
		return err
	}
	if r.tap, err = history.StartTap(ctx, r.recorder, r.env.Space.Root(), r.observers()...); err != nil {
		return err
	}
	if r.control, err = newControl(r.socket); err != nil {
		return err
	}
	for i := range r.Clients {
		c := &client{run: r, index: i}
		r.clients = append(r.clients, c)
		if err := c.start(); err != nil {
			return err
		}
	}
	return nil
}

// observers are clients of one server each.
func (r *run) observers() (all []*clientv3.Client) {
	for i := range servers {
		all = append(all, r.cluster.MemberClient(i))
	}
	return all
}

// settings records what the checkers have to know.
func (r *run) settings(version string) {
	for name, value := range map[string]string{
		"etcd": version, "seed": fmt.Sprint(r.Seed), "duration": r.Duration.String(),
		check.SettingTTL: r.TTL.String(), check.SettingEarly: LeaderResumed + "," + ProxyStopped,
	} {
		r.recorder.Set(name, value)
	}
	chaos.DeclareRequests(r.recorder)
	required := []string{check.EffectGrants, check.EffectStarts, check.EffectAttempts}
	for _, n := range nemeses {
		if slices.Contains(r.Nemeses, n.name) {
			required = append(required, n.effect)
		}
	}
	if len(r.Nemeses) == len(Nemeses()) {
		required = append(required, check.EffectExpiries, check.EffectUnknown, check.EffectEvictions, check.EffectReplays, check.EffectTokens, attemptsKilled)
	}
	for _, effect := range required {
		r.recorder.Set(check.RequirePrefix+effect, "1")
	}
	r.required = required
}

// blindFor bounds how late a holder may learn of the end of its lease while no server is stopped
// or slow. The next renewal, which would show it too, is often later.
func (r *run) blindFor() time.Duration { return r.TTL / 4 }

// provoke stops the leader, again and again, until leases have ended early.
func (r *run) provoke() error {
	defer r.probeLatency()()
	for n := range r.Stops {
		if chaos.Sleep(r.life, time.Second) != nil {
			return r.life.Err()
		}
		r.note("stop-leader, try %d", n+1)
		r.stopLeader(r.life, nil)
		for end := time.Now().Add(echo); ; {
			seen, err := r.seeEarly()
			if seen || err != nil {
				return err
			}
			if n+1 < r.Stops || time.Now().After(end) {
				break // another will show it, or this one later
			}
		}
	}
	r.note("no lease has ended early in %d tries", r.Stops)
	return nil
}

// seeEarly waits for a moment and reports whether leases have ended early. Then their
// holders know it, or the run reports that they do not.
func (r *run) seeEarly() (seen bool, err error) {
	if err := chaos.Sleep(r.life, r.blindFor()); err != nil {
		return false, err
	}
	h, err := r.history()
	if err != nil {
		return false, err
	}
	early := earlyEnds(h)
	if len(early) == 0 {
		return false, nil
	}
	r.note("%s", tellEarly(early, h.Counts()[leadersStopped]))
	for _, e := range early {
		reported := e.At + int64(e.Blind)
		if slow := check.Slow(h, e.At, reported); e.Blind > r.blindFor()+time.Duration(slow) && !stopped(h, e.At, reported) {
			r.recorder.Finding("deaf", false, fmt.Sprintf("lease %x ended early, and a holder noticed it only %v later", e.Lease, e.Blind))
		}
	}
	return true, nil
}

// history merges what the parent and all clients have recorded until now.
func (r *run) history() (*history.History, error) {
	own, err := r.recorder.History()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, c := range r.clients {
		for _, f := range c.histories() {
			if _, err := os.Stat(f); err == nil { // one may have been killed before its first event
				files = append(files, f)
			}
		}
	}
	others, err := history.ReadFiles(files...)
	if err != nil {
		return nil, err
	}
	return history.Merge(own, others), nil
}

// watchLeaders counts changes of etcd's leader until ctx ends.
func (r *run) watchLeaders(ctx context.Context) {
	known := r.cluster.Leader(ctx)
	for chaos.Sleep(ctx, 100*time.Millisecond) == nil {
		if now := r.cluster.Leader(ctx); now >= 0 && now != known {
			r.recorder.Count(effectLeaders, 1)
			known = now
		}
	}
}

func (r *run) tellProgress(ctx context.Context) {
	for chaos.Sleep(ctx, 15*time.Second) == nil {
		if h, err := r.history(); err == nil {
			n := h.Counts()
			r.note("%d events, %d clients and %d servers killed, %d and %d paused, %d leader changes, %d compactions", len(h.Events),
				n[clientsKilled], n[serversKilled], n[clientsPaused], n[serversPaused], n[effectLeaders], n[effectCompactions])
		}
	}
}

// mend repeats what undoes a harm until it succeeds. If it never does, the run says
// nothing about liveness.
func (r *run) mend(what string, undo func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.life), time.Minute)
	defer cancel()
	err := undo(ctx)
	for err != nil && chaos.Sleep(ctx, 100*time.Millisecond) == nil {
		err = undo(ctx)
	}
	if err != nil {
		r.recorder.Finding("mend", true, fmt.Sprintf("%s: %v", what, err))
	}
}

func (r *run) note(format string, args ...any) { r.Progress(format, args...) }

// close ends everything.
func (r *run) close() {
	for _, c := range r.clients {
		if p, _ := c.present(); p != nil {
			p.Kill()
		}
	}
	if r.control != nil {
		r.control.close()
	}
	if r.tap != nil {
		r.tap.Close()
	}
	if r.proxy != nil {
		r.proxy.Close()
	}
	if r.cluster != nil {
		r.cluster.Close()
	}
}

// names of the present clients.
func (r *run) names() (names []string) {
	for _, c := range r.clients {
		_, name := c.present()
		names = append(names, name)
	}
	return names
}

// together has all clients go through a phase.
func (r *run) together(p Phase) (findings []string) {
	ctx, cancel := context.WithTimeout(r.life, probing+20*time.Second)
	defer cancel()
	r.control.begin(p)
	findings, missing := r.control.wait(p, ctx.Done(), r.names()...)
	if len(missing) > 0 {
		findings = append(findings, fmt.Sprintf("clients did not come to the end of phase %d: %s", p, strings.Join(missing, ", ")))
		for _, c := range r.clients {
			if p, _ := c.present(); p.Ended() {
				findings = append(findings, fmt.Sprintf("%s ended by itself: %v\n%s", c.name(), p.Err(), p.Tail(2000)))
			}
		}
	}
	return findings
}

// String returns the verdict, its reasons, and the fate of stopped leaders and clients.
func (r *Result) String() string {
	return fmt.Sprintf("etcd %s\n%s  %s\n  %s\n  %s\n  %s\n", r.Version, r.Report, tellEarly(r.Early, r.Stops), r.Pauses, r.Kills, r.Losses)
}
