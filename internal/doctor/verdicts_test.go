package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// node is what a member answers.
type node struct {
	id, cluster, leader uint64
	version             string
	learner             bool
	errors              []string
}

// answers returns what members of a cluster answer at m1, m2 and so on. The members of the cluster are all of them.
func answers(nodes ...node) Survey {
	s := Survey{Slow: time.Second}
	list := &pb.MemberListResponse{Header: &pb.ResponseHeader{MemberId: 1}}
	for i, n := range nodes {
		at := "m" + string(rune('1'+i))
		list.Members = append(list.Members, &pb.Member{ID: n.id, Name: "etcd-" + at, ClientURLs: []string{"http://" + at}, IsLearner: n.learner})
		s.Answers = append(s.Answers, Answer{Endpoint: at, Took: time.Millisecond, Members: list, Status: &pb.StatusResponse{
			Header: &pb.ResponseHeader{ClusterId: n.cluster, MemberId: n.id}, Leader: n.leader, Version: n.version, IsLearner: n.learner, Errors: n.errors,
		}})
	}
	return s
}

func three() Survey {
	return answers(node{id: 1, cluster: 7, leader: 1, version: "3.6.16"}, node{id: 2, cluster: 7, leader: 1, version: "3.6.16"}, node{id: 3, cluster: 7, leader: 1, version: "3.6.16"})
}

// with changes a survey.
func with(s Survey, change func(*Survey)) Survey {
	change(&s)
	return s
}

func down(s Survey, i int) Survey {
	return with(s, func(s *Survey) {
		s.Answers[i] = Answer{Endpoint: s.Answers[i].Endpoint, Err: status.Error(codes.Unavailable, "connection refused")}
	})
}

func majority(s Survey, err error) []Finding {
	found, _ := s.Majority(Times{}, err)
	return found
}

func TestVerdicts(t *testing.T) {
	timeout := context.DeadlineExceeded
	learner := answers(node{id: 1, cluster: 7, leader: 9, learner: true})
	alone := answers(node{id: 1, cluster: 7})
	nospace := []string{"memberID:2 alarm:NOSPACE ", "memberID:3  alarm:NOSPACE"}
	for name, c := range map[string]struct {
		got  []Finding
		want Level
		text string
	}{
		"3.6 is good":         {version("m", "3.6.16"), "", ""},
		"3.6 of the floor":    {version("m", "3.6.14"), "", ""},
		"3.6 below it":        {version("m", "3.6.13"), Fail, "older than 3.6.14"},
		"3.5 below it":        {version("m", "3.5.9"), Fail, "older than 3.5.33"},
		"3.7 before release":  {version("m", "3.7.1-rc.0"), "", ""},
		"3.4":                 {version("m", "3.4.40"), Warn, "not tested with"},
		"4.0":                 {version("m", "4.0.0"), Warn, "not tested with"},
		"no version":          {version("m", "Not decided"), Warn, "not known"},
		"one line":            {three().lines(), "", ""},
		"two lines":           {with(three(), func(s *Survey) { s.Answers[1].Status.Version = "3.5.35" }).lines(), Warn, "of the lines 3.5 and 3.6"},
		"no alarm":            {Alarms(three()), "", ""},
		"another trouble":     {Alarms(answers(node{id: 1, cluster: 7, errors: []string{"x"}})), Warn, "m1: x"},
		"no leader, once":     {Alarms(answers(node{id: 1, cluster: 7, errors: []string{"etcdserver: no leader"}})), "", ""},
		"much room":           {size("m", "3.6.16", 100<<20, 50<<20, 2<<30), OK, "of a quota of 2048.0 MiB"},
		"a large file":        {size("m", "3.6.16", 1900<<20, 50<<20, 2<<30), Warn, "in use 50.0 MiB"},
		"a full file":         {size("m", "3.6.16", 1900<<20, 1800<<20, 2<<30), Fail, "in use 1800.0 MiB"},
		"no quota by 3.5":     {size("m", "3.5.35", 1900<<20, 1600<<20, 0), OK, "before 3.6"},
		"no quota by another": {size("m", "3.6.11", 1900<<20, 1600<<20, 0), OK, "the member does not report"},
		"A733: full by 3.5":   {size("m", "3.5.35", 1900<<20, 1800<<20, 0), Warn, "does not report its quota (2 GiB by default)"},
		"one cluster":         {down(three(), 2).clusters(), "", ""},
		"two clusters":        {with(three(), func(s *Survey) { s.Answers[1].Status.Header.ClusterId = 8 }).clusters(), Fail, "of 2 clusters"},
		"two leaders":         {with(three(), func(s *Survey) { s.Answers[1].Status.Leader = 2 }).clusters(), Warn, "name 2 leaders"},
		"a leader and none":   {with(three(), func(s *Survey) { s.Answers[1].Status.Leader = 0 }).clusters(), "", ""},
		"no endpoint answers": {down(answers(node{}), 0).Endpoints(), Fail, "no endpoint answers"},
		"a slow answer":       {with(three(), func(s *Survey) { s.Slow = time.Microsecond }).Endpoints(), Warn, "slow: answered in 1ms"},

		"three members":        {three().Members(), OK, "3 voting members"},
		"one of three":         {with(three(), func(s *Survey) { s.Answers = s.Answers[:1] }).Members(), Warn, "2 of 3 members are not among the endpoints: 2 (etcd-m2, http://m2); 3 ("},
		"listed, and down":     {down(three(), 1).Members(), OK, "3 voting members"},
		"another's address":    {with(down(three(), 1), func(s *Survey) { s.Answers[1].Endpoint = "m9" }).Members(), Warn, "1 of 3 members"},
		"the same twice":       {with(three(), func(s *Survey) { s.Answers[1].Status.Header.MemberId = 1 }).twice(), Warn, "m1 and m2 are the same member, 1 (etcd-m1, http://m1)"},
		"an alias":             {with(three(), func(s *Survey) { s.Answers[0].Endpoint = "https://lb:2379" }).Members(), OK, "https://lb:2379 is no address"},
		"a single member":      {answers(node{id: 1, cluster: 7, leader: 1}).Members(), Warn, "1 voting member"},
		"two members":          {votes([]*pb.Member{{}, {}}), Warn, "2 voting members"},
		"a learner is no vote": {votes([]*pb.Member{{}, {}, {}, {ID: 10, Name: "n", IsLearner: true}}), OK, "and learners: a (n)"},
		"may not list": {with(three(), func(s *Survey) {
			for i := range s.Answers {
				s.Answers[i].Members, s.Answers[i].MembersErr = nil, rpctypes.ErrPermissionDenied
			}
		}).Members(), OK, "may not list the members"},
		"a proxy":       {with(three(), func(s *Survey) { s.Answers[0].Members = &pb.MemberListResponse{Members: []*pb.Member{{}}} }).Endpoints(), Fail, "m1: etcd's gRPC proxy answers"},
		"a quiet proxy": {with(three(), func(s *Survey) { s.Answers[0].Renewal = -1 }).Endpoints(), Fail, "m1: etcd's gRPC proxy answers"},
		"no etcd":       {answers(node{version: "3.6.11"}).Endpoints(), Fail, "m1: no etcd"},

		"reads":              {majority(three(), nil), OK, "answers reads in"},
		"slow reads":         {majority(with(three(), func(s *Survey) { s.Slow = -1 }), nil), Warn, "slow: a majority answers reads"},
		"reads time out":     {majority(three(), timeout), Fail, "a read failed"},
		"no majority":        {majority(down(down(answers(node{id: 1, cluster: 7}, node{id: 2}, node{id: 3}), 1), 2), timeout), Fail, "a read by a majority failed"},
		"no leader":          {majority(three(), rpctypes.ErrNoLeader), Fail, "a read by a majority failed"},
		"a learner's answer": {majority(learner, errors.New("x")), Fail, "each endpoint that answers is a learner"},
		"not known":          {majority(down(alone, 0), timeout), Fail, "a read failed"},
		"may not read":       {majority(three(), rpctypes.ErrPermissionDenied), Warn, "may not read"},

		"writes":           {three().Writing(Times{}, Times{time.Millisecond, 400 * time.Millisecond}, nil), OK, "stores a write in 1ms to 400ms"},
		"slow disks":       {three().Writing(Times{time.Millisecond, 2}, Times{600 * time.Millisecond, 700 * time.Millisecond}, nil), Warn, "and answers a read in 1ms"},
		"all is slow":      {three().Writing(Times{time.Second, 2}, Times{time.Second, time.Second}, nil), Warn, "slow: a majority stores a write in 1000ms"},
		"a write fails":    {three().Writing(Times{}, Times{}, timeout), Fail, "a write failed"},
		"no space, by now": {three().Writing(Times{}, Times{}, rpctypes.ErrNoSpace), "", ""},

		"may all":     {Grants{[]string{"a/", "b/"}, []string{"a/", "b/"}, []string{"a/", "b/"}}.Findings("/r/"), OK, "may be read and written"},
		"may read":    {Grants{[]string{"a/"}, nil, []string{"a/"}}.Findings("/r/"), Warn, "and not write it"},
		"a dashboard": {Grants{[]string{"a/", "session/"}, []string{"session/"}, []string{"a/", "session/"}}.Findings("/r/"), Warn, "write only session/"},
		"a part":      {Grants{[]string{"a/", "b/"}, []string{"a/"}, []string{"a/", "b/", "c/"}}.Findings("/r/"), Fail, "may not write b/ c/, and may not read c/"},
		"nothing":     {Grants{nil, nil, []string{"a/"}}.Findings("/r/"), Fail, "neither read nor write"},

		"few revisions":        {history(1000, nil, 1000), OK, "fewer than 1000"},
		"compacted":            {history(1000, rpctypes.ErrCompacted, 5000), OK, "are compacted"},
		"not compacted":        {history(1000, nil, 5000), Warn, "more than 1000"},
		"history not readable": {history(1000, rpctypes.ErrPermissionDenied, 5000), Warn, "old revisions"},
		"one lease":            {leased(1), OK, "1 lease in"},
		"many leases":          {leased(30_000), Warn, "30000 leases"},
	} {
		worst, all := Finding{}, ""
		for _, f := range c.got {
			if all += f.Text + "\n"; worst.Level == "" || f.Level == Fail || f.Level == Warn && worst.Level == OK {
				worst = f
			}
			require.Equal(t, f.Level == Warn || f.Level == Fail, f.Advice != "", "%s: %s: a finding says what to do", name, f.Text)
			require.False(t, strings.HasSuffix(f.Text, "."), name)
			require.NotContains(t, f.Text, "\n", name)
		}
		if name != "an alias" {
			require.Contains(t, worst.Text, c.text, name)
		}
		require.Equal(t, c.want, worst.Level, name+": "+all)
		require.Contains(t, all, c.text, name)
	}
	same, _ := three().Majority(Times{2 * time.Millisecond, 2*time.Millisecond + 1}, nil)
	require.Equal(t, "a majority answers reads in 2ms", same[0].Text, "not 2ms to 2ms")
	found := Alarms(with(three(), func(s *Survey) {
		for i := range s.Answers {
			s.Answers[i].Status.Errors = nospace
		}
	}))
	require.Len(t, found, 2, "each alarm is named once, whichever members list it")
	require.Equal(t, "NOSPACE, raised by member 2 (etcd-m2, http://m2)", found[0].Text)
	require.Equal(t, Fail, found[1].Level)
}

// A check that has measured something and then runs out of time has measured that etcd is slow.
func TestMeasureRunsOutOfTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	got, err := measure(ctx, 5, func(context.Context) error {
		if calls++; calls == 2 {
			cancel()
			return ctx.Err()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.NotZero(t, got.Most)
	_, err = measure(ctx, 5, func(context.Context) error { return ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
}
