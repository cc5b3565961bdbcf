package etcdfake_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// session opens the session of one process, and closes it with the test.
func session(t *testing.T, client *etcdfake.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(t.Context(), client.Client, "recipes", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// ok stops the test at an error that is not expected.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// example runs a test from an Example, and prints its result.
func example(test func(t *testing.T)) {
	if runTest(test) {
		fmt.Println("PASS")
	} else {
		fmt.Println("FAIL")
	}
}

// runTest runs a test where there is no *testing.T, which a bubble needs: in an Example, in a benchmark.
func runTest(test func(t *testing.T)) (passed bool) {
	ran, out := false, os.Stdout
	os.Stdout = os.Stderr // for what -v prints
	defer func() { os.Stdout = out }()
	match := func(pattern, _ string) (bool, error) { return pattern != flag.Lookup("test.skip").Value.String(), nil }
	passed = testing.RunTests(match, []testing.InternalTest{{Name: "Test", F: func(t *testing.T) {
		if !ran { // -count and -cpu repeat tests and no examples
			ran = true
			test(t)
		}
	}}})
	return passed && ran
}

// recipes are the tests of the examples that also run on a real etcd. That of the clock change says that it needs a bubble.
var recipes = map[string]func(t *testing.T, etcd *etcdfake.Server){
	"lost answer":    lostAnswer,
	"lost permit":    lostPermit,
	"outage":         outage,
	"crash":          crash,
	"asked to leave": askedToLeave,
}

// The same tests pass on a real etcd, with one option more.
func TestRecipesOnRealEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a lease expires in real time")
	}
	for name, recipe := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "outage" && os.Getenv("ETCD_BINARY") == "" {
				t.Skip("ETCD_BINARY is not set: a minute without etcd takes a minute (make compat runs it)")
			}
			etcdfake.Test(t, recipe, etcdfake.Endpoints(ownEtcd(t)...))
		})
	}
}
