package conformance_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency/conformance"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

func cluster(t *testing.T) clientv3.Config {
	return clientv3.Config{Endpoints: embedtest.Shared(t).Endpoints()}
}

// A store with another implementation keeps all promises: they are not specific to etcdkit's store.
func TestModel(t *testing.T) {
	conformance.Idempotency(t, cluster(t), &model{}, nil)
}

// rules are the rules of the model, each with the promise that fails without it, and a part of the
// failure.
var rules = map[string]struct{ promise, says string }{
	"one at a time":                               {"OneExecution", "the function ran"},
	"all processes know an outcome":               {"Replay", "executed the request again after an outcome"},
	"waiters get the result":                      {"Wait", `"" in place of the error "in progress"`},
	"a call that stops waiting changes nothing":   {"Wait", `"run 1" in place of the error "in progress"`},
	"a call that does not wait changes nothing":   {"NoWait", `"run 1" in place of the error "in progress"`},
	"payloads are compared":                       {"Mismatch", `in place of "mismatch"`},
	"payloads are compared in progress":           {"Mismatch", `in place of "mismatch"`},
	"payloads are compared with outcomes":         {"Mismatch", `in place of the error "mismatch"`},
	"the scope counts":                            {"Scopes", "mismatch"},
	"the operation counts":                        {"Scopes", "mismatch"},
	"parts of the key are kept apart":             {"Scopes", "mismatch"},
	"keys are checked":                            {"Invalid", `in place of the error "invalid"`},
	"keys are hashed":                             {"RawKey", "part of the key"},
	"large results are done all the same":         {"LargeResult", "replayed: false"},
	"large results are kept whole":                {"LargeResult", "that are not the result"},
	"errors are no outcomes":                      {"ErrorReleasesTheKey", "failed before"},
	"failures are remembered":                     {"ErrorRemembered", `in place of the error "failed"`},
	"a panic ends its attempt":                    {"Panic", "does not return within"},
	"a panic is no success":                       {"Panic", `in place of the error "unknown"`},
	"the work outlives its caller":                {"CallerDisconnects", `has ended the work|in place of the error "in progress"`},
	"the outcome outlives the caller":             {"CallerDisconnects", "has lost the outcome"},
	"own keys come with the outcome":              {"OwnKeys", "after an error, the caller's own key was put 1 times"},
	"own conditions count":                        {"OwnKeys", `in place of the error "conflict"`},
	"steps are kept":                              {"Steps", "ran 3 times"},
	"lost attempts are taken over":                {"CrashTakeOver", "not called within"},
	"attempts are counted":                        {"CrashTakeOver", "attempt 1 comes after attempt 1"},
	"tokens rise":                                 {"CrashTakeOver", "token 1 comes after token 1"},
	"child keys are the same in all attempts":     {"CrashTakeOver", "another child key"},
	"the guard guards":                            {"CrashTakeOver", "guard of a lost attempt holds"},
	"refusals are kept":                           {"CrashRefuse", `in place of the error "unknown"`},
	"outcomes outlive their process":              {"CrashAfterOutcome", "executed the request again after an outcome"},
	"a slow one keeps its claim":                  {"SlowAndDead", `in place of (the error "in progress"|a value)`},
	"the dead are noticed":                        {"SlowAndDead", "not called within"},
	"a zombie records nothing":                    {"Zombie", `in place of the error "fenced"`},
	"a zombie frees nothing":                      {"Zombie", `in place of the error "in progress"`},
	"a lost response is looked into":              {"LostResponses", "put 2 times"},
	"a returned one is written until it is there": {"ReturnedNotRecorded", `after the work was done|in place of the error "in progress"`},
	"outcomes stay for as long as was said":       {"Retention", "an outcome was kept for"},
	"outcomes go":                                 {"Retention", "still exists"},
	"claims go":                                   {"NothingIsLeft", "keys are left"},
	"closing leaves no key":                       {"NothingIsLeft", "keys are left"},
	"closing leaves no lease":                     {"NothingIsLeft", "leases are left"},
}

// Every promise fails if one of its rules is removed.
func TestEveryPromiseCanFail(t *testing.T) {
	for _, p := range conformance.Promises() {
		shown := false
		for rule, by := range rules {
			if by.promise != p.Name {
				continue
			}
			shown = true
			t.Run(rule, func(t *testing.T) {
				t.Parallel()
				// Longer than etcd's shortest lease by default, and than a machine stalls.
				opts := &conformance.Options{Patience: 3 * time.Second}
				err := p.Check(t.Context(), cluster(t), &model{without: rule}, opts)
				require.Error(t, err)
				require.Regexp(t, by.says, err.Error())
			})
		}
		require.True(t, shown, "no rule shows that %s can fail", p.Name)
	}
}

// What a store cannot do is skipped.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	for _, p := range conformance.Promises() {
		if p.Name == "Steps" {
			err := p.Check(t.Context(), cluster(t), &model{without: "there are steps"}, nil)
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
	}
}

// Without a cluster that can be read, the error names prefix and endpoints.
func TestNoCluster(t *testing.T) {
	t.Parallel()
	p := conformance.Promises()[0]
	err := p.Check(t.Context(), clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}, &model{}, &conformance.Options{Patience: 100 * time.Millisecond})
	require.ErrorContains(t, err, "read keys below /conformance/ at [127.0.0.1:1]")
}

// Whatever the result of a promise, it leaves no key and no lease.
func TestNothingStaysBehind(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("others have keys and leases there")
	}
	cfg := clientv3.Config{Endpoints: c.Endpoints()}
	for _, p := range conformance.Promises() {
		switch p.Name {
		case "Zombie", "CrashRefuse", "OwnKeys", "NothingIsLeft":
			_ = p.Check(t.Context(), cfg, &model{without: "claims go"}, &conformance.Options{Patience: time.Second})
			require.Error(t, p.Check(t.Context(), cfg, &model{without: "attempts begin"}, nil))
		}
	}
	resp, err := c.Client().Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	leases, err := c.Client().Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}
