package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// findings are what the doctor has found.
type findings []doctor.Finding

// urgent has an operator see soon that what was wrong is over.
func (all findings) urgent() bool {
	return slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Level == doctor.Fail })
}

// doctorPage is the page of the doctor.
type doctorPage struct {
	Findings findings
	Worst    map[string]int // how many findings there are of each level
	Unread   string         // why the namespace was not examined, or ""
}

func readDoctor(q request) (any, quality, error) {
	all, st, err := read(q, "doctor", q.console.examine)
	if err != nil {
		return nil, st, err
	}
	p := doctorPage{Worst: map[string]int{}}
	ctx, cancel := context.WithTimeout(q.Context(), patience) // what is wrong with etcd is shown without it
	defer cancel()
	q.Request = q.WithContext(ctx)
	own, space := int64(q.console.sess.Lease()), q.console.inner.Space()
	kept, how, err := look(q, "findings", func(s *fleet.State) []doctor.Finding { return namespaceFindings(s, space, own, time.Now()) })
	switch {
	case err != nil:
		p.Unread = err.Error()
	case how.unconfirmed != "":
		p.Unread = how.unconfirmed
	}
	p.Findings = slices.Concat(all, kept)
	slices.SortStableFunc(p.Findings, func(a, b doctor.Finding) int { return worst[a.Level] - worst[b.Level] })
	for _, f := range p.Findings {
		p.Worst[string(f.Level)]++
	}
	return p, st, nil
}

// worst is the order of the findings.
var worst = map[doctor.Level]int{doctor.Fail: 0, doctor.Warn: 1, doctor.Note: 2, doctor.OK: 3}

const (
	slow     = 500 * time.Millisecond // an answer that takes longer takes too long
	askBound = 2 * time.Second        // of each check
)

// examine makes the checks of the command's doctor that take few calls, at the same time. One member that hangs keeps
// nothing from the others.
func (c *console) examine(ctx context.Context) (all findings, _ error) {
	var survey doctor.Survey
	var reads, writes doctor.Times
	var unread, unwritten error
	client, space := c.inner.Etcd().Client, c.inner.Space()
	parts := make([][]doctor.Finding, 5)
	var checks sync.WaitGroup
	check := func(run func(context.Context)) {
		checks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askBound)
			defer cancel()
			run(ctx)
		})
	}
	check(func(ctx context.Context) { survey = doctor.Ask(ctx, client, askBound, slow) })
	check(func(ctx context.Context) { reads, unread = doctor.Reads(ctx, c.inner.KV(), space.Root(), 1) })
	check(func(ctx context.Context) { writes, unwritten = doctor.Writes(ctx, client, space.Root(), 1) })
	check(func(ctx context.Context) {
		users, _ := doctor.Users(ctx, client)
		parts[0] = doctor.Named("auth", users)
	})
	check(func(ctx context.Context) {
		grants, err := doctor.Permissions(ctx, client, space)
		if err != nil {
			parts[1] = doctor.Named("permissions", doctor.NotMade("permissions", err))
			return
		}
		parts[1] = doctor.Named("permissions", grants.Findings(space.Root()))
	})
	check(func(ctx context.Context) {
		parts[2] = doctor.Named("compaction", doctor.Compaction(ctx, client, space.Root(), doctor.ManyRevisions))
	})
	check(func(ctx context.Context) { parts[3] = doctor.Named("leases", doctor.Leases(ctx, client)) })
	check(func(ctx context.Context) {
		parts[4] = doctor.Named("streams", c.streams.look(ctx, func(ctx context.Context) []doctor.Finding { return doctor.Streams(ctx, client) }))
	})
	checks.Wait()
	majority, cut := survey.Majority(reads, unread)
	all = slices.Concat(findings(doctor.Named("endpoint", survey.Endpoints())), doctor.Named("members", survey.Members()),
		doctor.Named("alarm", doctor.Alarms(survey)), doctor.Named("majority", majority))
	if !cut { // each other check of what is in etcd would say the same
		all = append(all, doctor.Named("write", survey.Writing(reads, writes, unwritten))...)
		all = append(all, slices.Concat(parts...)...)
	}
	return append(all, doctor.Named("session", c.own())...), nil
}

// alarmsEvery is how often the members are asked for alarms while the overview is read.
const alarmsEvery = 5 * time.Second

// alarms returns what the doctor finds of the alarms. Each member lists those of all, so a slow one is not awaited.
func (c *console) alarms(ctx context.Context) (findings, error) {
	return doctor.Alarms(doctor.Ask(ctx, c.inner.Etcd().Client, slow, slow)), nil
}

// streamsEvery is how often connections are made to count the streams that they may have: nothing changes that while the
// same processes run.
const streamsEvery = time.Minute

// streamCheck has the latest finding about the streams of a connection.
type streamCheck struct {
	mu     sync.Mutex
	found  []doctor.Finding
	until  time.Time
	asking chan struct{} // closed when the call that makes connections has ended; nil if none does
}

// look returns what is known of the streams of a connection. One call at a time asks for it; the others wait for that, or
// return what was known before when their ctx ends.
func (s *streamCheck) look(ctx context.Context, ask func(context.Context) []doctor.Finding) []doctor.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.asking != nil && ctx.Err() == nil {
		asking := s.asking
		s.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if s.asking == nil && time.Now().After(s.until) {
		s.ask(ctx, ask)
	}
	return slices.Clone(s.found)
}

// ask asks, without s.mu, which is locked before and after.
func (s *streamCheck) ask(ctx context.Context, ask func(context.Context) []doctor.Finding) {
	asking := make(chan struct{})
	s.asking = asking
	s.mu.Unlock()
	found := ask(ctx)
	s.mu.Lock()
	s.asking = nil
	close(asking)
	if s.found = found; found != nil { // an endpoint has answered
		s.until = time.Now().Add(streamsEvery)
	}
}

// own is the finding about the console's own session.
func (c *console) own() []doctor.Finding {
	switch {
	case c.inner.Leaseless():
		return doctor.One(doctor.OK, "", "this console needs no session, and has none")
	case c.sess.Lease() == 0:
		return doctor.One(doctor.Fail, "It takes a new one as soon as etcd grants it.", "this console's session has no lease at the moment")
	}
	return doctor.One(doctor.OK, "", "this console's session is alive")
}
