package deptest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// fence forbids some imports to some files. Only direct imports are looked at:
// every link of a chain is a direct import.
type fence struct {
	name string
	why  string
	// bans reports whether f must not import the package.
	bans func(f file, importPath string) bool
	// planted is a file that breaks the fence: its path and what it imports.
	planted [2]string
}

var fences = []fence{
	{
		name: "internal packages import no public one but observe",
		why:  "the public packages, the console and the command are built from them, and the arrow must not turn; observe has types alone",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, "internal") && !f.test && dir != "observe" && within(dir, public...)
		},
		planted: [2]string{"internal/queue/queue.go", module + "/concurrency"},
	},
	{
		name: "only concurrency and what it is made of, schedlock, idempotency, the console, the command and their list of changes import the engine",
		why:  "it is the inside of a Session, which these three build on, and of which the console shows what they do not: the stores, sessions and members of etcd; verbs that only read start it without a lease; what the parts below it need, they are given",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(dir, "internal/engine") && !f.test && !slices.Contains([]string{"concurrency", "internal/queue", "internal/entry", "internal/keep", "internal/ratelimit", "schedlock", "idempotency", "console", "internal/audit"}, f.dir) && !within(f.dir, "cmd/etcdkit/internal/cli")
		},
		planted: [2]string{"internal/mirror/mirror.go", module + "/internal/engine"},
	},
	{
		name: "concurrency imports none of its users",
		why:  "it is the foundation: a program that wants only a semaphore gets only that",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, "concurrency") && !f.test && within(dir, "schedlock", "idempotency")
		},
		planted: [2]string{"concurrency/semaphore.go", module + "/schedlock"},
	},
	{
		name: "only the command and the examples import the console",
		why:  "it shows what the primitives keep in etcd, so it imports them; a program that mounts no page links no templates and no net/http for one",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(dir, "console") && !f.test && !within(f.dir, "console", "cmd/etcdkit", "examples")
		},
		planted: [2]string{"schedlock/locker.go", module + "/console"},
	},
	{
		name: "the console does not import the exporter, nor the exporter the console",
		why:  "they are two views of one state, which internal/fleet reads for both; a program chooses one without linking the other",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && !f.test && (within(f.dir, "console") && within(dir, "exporter") || within(f.dir, "exporter") && within(dir, "console"))
		},
		planted: [2]string{"console/overview.go", module + "/exporter"},
	},
	{
		name: "the console writes no page with text/template",
		why:  "names, notes and results in etcd are any client's text, and only html/template escapes them",
		bans: func(f file, imp string) bool {
			return within(f.dir, "console") && !f.test && imp == "text/template"
		},
		planted: [2]string{"console/handler.go", "text/template"},
	},
	{
		name: "the guard imports the standard library and golang.org/x/sys alone",
		why:  "it ends a command when etcd, the network or the other process has failed: nothing that needs one of them may be in its way",
		bans: func(f file, imp string) bool {
			return within(f.dir, "cmd/etcdkit/internal/guard") && !f.test && !isStandard(imp) && !within(imp, "golang.org/x/sys")
		},
		planted: [2]string{"cmd/etcdkit/internal/guard/guard.go", "go.etcd.io/etcd/client/v3"},
	},
	{
		name: "a package of verbs imports no other one",
		why:  "the root of the command composes them, so each is read alone; what two of them share is in a package below both",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, verbs...) && within(dir, verbs...) && dir != f.dir && !f.test
		},
		planted: [2]string{"cmd/etcdkit/internal/cli/jobs/jobs.go", module + "/cmd/etcdkit/internal/cli/cron"},
	},
	{
		name: "what the verbs share imports none of them, and not their root",
		why:  "it is the ground of the command, and the arrow must not turn",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			shared := within(f.dir, "cmd/etcdkit/internal/cli") && f.dir != "cmd/etcdkit/internal/cli" && !within(f.dir, verbs...)
			return ok && shared && !f.test && (dir == "cmd/etcdkit/internal/cli" || within(dir, verbs...))
		},
		planted: [2]string{"cmd/etcdkit/internal/cli/verb/call.go", module + "/cmd/etcdkit/internal/cli/jobs"},
	},
	{
		name: "schedlock does not import idempotency",
		why:  "they are two answers to two questions and share only a Session",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, "schedlock") && within(dir, "idempotency")
		},
		planted: [2]string{"schedlock/locker.go", module + "/idempotency"},
	},
	{
		name: "idempotency does not import schedlock",
		why:  "they are two answers to two questions and share only a Session",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, "idempotency") && within(dir, "schedlock")
		},
		planted: [2]string{"idempotency/store_test.go", module + "/schedlock"},
	},
	{
		name: "observe imports the standard library alone",
		why:  "hooks of all packages name its types, and a program that counts calls itself links nothing for them",
		bans: func(f file, imp string) bool {
			return f.dir == "observe" && !f.test && strings.Contains(imp, ".")
		},
		planted: [2]string{"observe/hooks.go", module + "/concurrency"},
	},
	{
		name: "only otelkit imports OpenTelemetry, and of that the API alone",
		why:  "a program chooses its SDK and exporters, and one without telemetry links none of it",
		bans: func(f file, imp string) bool {
			const otel = "go.opentelemetry.io/otel"
			return !f.test && strings.HasPrefix(imp, otel) && (!within(f.dir, "observe/otelkit") || strings.HasPrefix(imp, otel+"/sdk") || strings.HasPrefix(imp, otel+"/exporters"))
		},
		planted: [2]string{"observe/otelkit/otelkit.go", "go.opentelemetry.io/otel/sdk/trace"},
	},
	{
		name: "only the exporter, promkit, the examples and the command import Prometheus",
		why:  "a program that publishes no metrics links none of it; the command is one that does (etcdkit export), and no program imports it",
		bans: func(f file, imp string) bool {
			return !f.test && strings.HasPrefix(imp, "github.com/prometheus/") && !within(f.dir, "exporter", "observe/promkit", "examples", "cmd/etcdkit")
		},
		planted: [2]string{"concurrency/session.go", "github.com/prometheus/client_golang/prometheus"},
	},
	{
		name: "only the command imports libraries for command lines",
		why:  "a service has flags of its own, and links none of it",
		bans: func(f file, imp string) bool {
			return !f.test && within(imp, "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term") && !within(f.dir, "cmd")
		},
		planted: [2]string{"concurrency/session.go", "github.com/spf13/cobra"},
	},
	{
		name: "embedtest imports no other public package",
		why:  "then the tests of all of them can use it without a cycle",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			recipe := within(f.dir, "embedtest/etcdfake") && f.test // of a package of its own, etcdfake_test
			return ok && within(f.dir, "embedtest") && !recipe && !within(dir, "embedtest") && within(dir, public...)
		},
		planted: [2]string{"embedtest/start_test.go", module + "/concurrency"},
	},
	{
		name: "only tests, examples, etcdkit-dev and what exists to prove import embedtest",
		why:  "it brings a whole etcd server, which no user's binary shall carry, and the command is one: it works on the user's etcd alone; etcdkit-dev is that server",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(dir, "embedtest") && !f.test && !within(f.dir, "embedtest", "examples", "internal/proof", "cmd/etcdkit-dev")
		},
		planted: [2]string{"concurrency/session.go", module + "/embedtest"},
	},
	{
		name: "etcdfake imports no server, real or of embedtest, and nothing of ours",
		why:  "a user's unit tests then build etcd's client alone, which their program has; the rest of a server's modules takes minutes to compile",
		bans: func(f file, imp string) bool {
			_, ok := ours(imp)
			return within(f.dir, "embedtest/etcdfake") && !f.test && (ok || within(imp, "go.etcd.io/etcd/server/v3"))
		},
		planted: [2]string{"embedtest/etcdfake/server.go", module + "/embedtest"},
	},
	{
		name: "only tests and the command import the conformance suites",
		why:  "they import testing, and are no part of a user's program; the command tests a cluster with them (etcdkit conformance), and no program imports it",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(dir, conformance...) && !f.test && !within(f.dir, conformance...) && !within(f.dir, "cmd/etcdkit")
		},
		planted: [2]string{"idempotency/store.go", module + "/idempotency/conformance"},
	},
	{
		name: "the conformance suites import no embedtest",
		why:  "a user runs them on an existing cluster, and should not build an etcd server for that",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(f.dir, conformance...) && !f.test && within(dir, "embedtest")
		},
		planted: [2]string{"idempotency/idemtest/idemtest.go", module + "/embedtest"},
	},
	{
		name: "the conformance suite imports nothing of ours",
		why:  "it knows a store by its promises alone, so that it tests any",
		bans: func(f file, imp string) bool {
			_, ok := ours(imp)
			return ok && within(f.dir, conformance[0]) && !f.test
		},
		planted: [2]string{"idempotency/conformance/run.go", module + "/internal/keyspace"},
	},
	{
		name: "only embedtest runs an etcd server, which etcdkit-dev configures",
		why:  "its dependencies are many times those of the client",
		bans: func(f file, imp string) bool {
			return within(imp, "go.etcd.io/etcd/server/v3") && !f.test && !within(f.dir, "embedtest", "cmd/etcdkit-dev")
		},
		planted: [2]string{"examples/fleet/main.go", "go.etcd.io/etcd/server/v3/embed"},
	},
	{
		name: "only tests import test libraries",
		why:  "assertions and generators do not belong into users' binaries",
		bans: func(f file, imp string) bool {
			return within(imp, "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/anishathalye/porcupine") && !f.test
		},
		planted: [2]string{"embedtest/start.go", "github.com/stretchr/testify/require"},
	},
	{
		name: "only tests import what exists to prove, and only the examples what they share",
		why:  "nemeses, checkers and fakes are no part of the product: internal/proof is a folder so that one rule holds for all of it",
		bans: func(f file, imp string) bool {
			dir, ok := ours(imp)
			return ok && within(dir, testOnly...) && !f.test && !(within(dir, sharedByExamples) && within(f.dir, "examples"))
		},
		planted: [2]string{"concurrency/permit.go", module + "/internal/proof/chaos"},
	},
	{
		name: "concurrency and what it is built from import no server, metrics, tracing or HTTP library",
		why:  "telemetry is a struct of functions, transports are packages of their own: no program pays for what it does not use",
		bans: func(f file, imp string) bool {
			core := f.dir == "concurrency" || within(f.dir, "internal") && f.dir != "internal/mux" // which middlewares of HTTP alone import
			return core && !f.test && within(imp, "net/http", "go.etcd.io/etcd/server/v3",
				"github.com/prometheus", "go.opentelemetry.io")
		},
		planted: [2]string{"concurrency/trace.go", "github.com/prometheus/client_golang/prometheus"},
	},
	{
		name: "what middlewares of all transports share imports their parent, what is internal to it or leads into it, the contexts of hooks, the detector of outages, what the halves say to each other, a parser of Structured Fields, and the standard library",
		why:  "it is the half of a middleware that knows no transport",
		bans: func(f file, imp string) bool {
			half, parent := path.Base(f.dir) == "middleware", path.Dir(path.Dir(f.dir))
			return half && slices.Contains(public, parent) && !f.test && !isStandard(imp) && imp != "github.com/dunglas/httpsfv" && imp != module+"/"+parent && !within(imp, module+"/"+parent+"/internal", module+"/internal/hook", module+"/internal/outage", module+"/internal/door", module+"/internal/share", module+"/internal/undone")
		},
		planted: [2]string{"idempotency/internal/middleware/run.go", "google.golang.org/grpc/codes"},
	},
	{
		name: "HTTP middleware imports its parent, the parent's half of a middleware, the forms of results, the methods that supervise a server, what a mux calls, and the standard library",
		why:  "middleware translates between a transport and its parent; what else it needs belongs into the parent; which calls of gRPC supervise a server is the same for all of them",
		bans: func(f file, imp string) bool {
			dir, _ := ours(imp)
			return isMiddleware(f, "http") && dir != "internal/supervise" && dir != "internal/mux" && !isStandard(imp) && !ofParent(f, imp)
		},
		planted: [2]string{"idempotency/idemhttp/middleware.go", "go.etcd.io/etcd/client/v3"},
	},
	{
		name: "gRPC middleware imports its parent, the parent's half of a middleware, the forms of results, the methods that supervise a server, grpc with its messages, and the standard library without net/http",
		why:  "middleware translates between a transport and its parent; what else it needs belongs into the parent; which calls of gRPC supervise a server is the same for all of them",
		bans: func(f file, imp string) bool {
			dir, _ := ours(imp)
			allowed := dir == "internal/supervise" || isStandard(imp) && !within(imp, "net/http") ||
				within(imp, "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc") || ofParent(f, imp)
			return isMiddleware(f, "grpc") && !allowed
		},
		planted: [2]string{"concurrency/limitgrpc/interceptor.go", module + "/internal/keyspace"},
	},
}

// conformance lists the packages that hold a store to its promises: first the suite, then
// what has our own stores run through it.
var conformance = []string{"idempotency/conformance", "idempotency/idemtest"}

// verbs are the packages of the command's verbs.
var verbs = []string{
	"cmd/etcdkit/internal/cli/cron", "cmd/etcdkit/internal/cli/doctor", "cmd/etcdkit/internal/cli/jobs", "cmd/etcdkit/internal/cli/permits",
	"cmd/etcdkit/internal/cli/queues", "cmd/etcdkit/internal/cli/requests", "cmd/etcdkit/internal/cli/serve", "cmd/etcdkit/internal/cli/trial",
}

// isMiddleware reports whether f belongs to a transport's package below a
// public one, such as concurrency/limithttp.
func isMiddleware(f file, transport string) bool {
	return slices.Contains(public, path.Dir(f.dir)) && strings.HasSuffix(f.dir, transport) && !f.test
}

// ofParent reports whether a middleware's import is its parent, the half of a middleware below it,
// what HTTP and gRPC share of RPC, or the forms of results that both know.
func ofParent(f file, imp string) bool {
	parent := path.Join(module, path.Dir(f.dir))
	return imp == parent || imp == parent+"/internal/middleware" || imp == parent+"/internal/rpc" || imp == module+"/internal/forms"
}

// isStandard reports whether an import path is of the standard library, whose
// first element never has a dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// breaches lists the imports that a fence forbids.
func (fe fence) breaches(tr *tree) []string {
	var found []string
	for _, f := range tr.files {
		for _, imp := range f.imports() {
			if fe.bans(f, imp) {
				found = append(found, fmt.Sprintf("%s imports %s", f.path, imp))
			}
		}
	}
	return found
}

func TestFences(t *testing.T) {
	tr := repository(t)
	for _, fe := range fences {
		for _, breach := range fe.breaches(tr) {
			t.Errorf("%s\n\trule: %s\n\tbecause: %s", breach, fe.name, fe.why)
		}
	}
}

// TestFencesFail shows that each fence stops the one import that it is for,
// and that a tree in order passes all of them.
func TestFencesFail(t *testing.T) {
	for _, fe := range fences {
		t.Run(fe.name, func(t *testing.T) {
			name, imp := fe.planted[0], fe.planted[1]
			tr := planted(t, map[string]string{name: importing(name, imp)})
			if got := fe.breaches(tr); len(got) != 1 {
				t.Errorf("%s importing %s: breaches %q, want one", name, imp, got)
			}
		})
	}

	// Some fences have more than one side.
	for _, of := range [][2]string{
		{"internal/fleet/state.go", module + "/console"},
		{"internal/fleet/state.go", module + "/cmd/etcdkit/internal/cli"},
		{"concurrency/session.go", module + "/console"},
		{"concurrency/session.go", module + "/" + sharedByExamples + "/program"},
		{"examples/fleet/main.go", module + "/internal/proof/procs"},
		{"exporter/exporter.go", module + "/console"},
		{"embedtest/start.go", module + "/console"},
		{"embedtest/etcdfake/server.go", "go.etcd.io/etcd/server/v3/mvcc"},
		{"embedtest/etcdfake/server.go", module + "/concurrency"},
		{"console/handler.go", module + "/embedtest"},
		{"console/handler.go", "go.etcd.io/etcd/server/v3/embed"},
		{"console/handler.go", "github.com/prometheus/client_golang/prometheus"},
		{"console/handler.go", "go.opentelemetry.io/otel"},
		{"console/handler.go", "github.com/spf13/cobra"},
		{"console/handler.go", module + "/idempotency/idemtest"},
		{"console/handler.go", module + "/internal/proof/testkit"},
		{"cmd/etcdkit/main.go", module + "/embedtest"},
		{"cmd/etcdkit/internal/cli/doctor.go", module + "/embedtest"},
		{"cmd/etcdkit/internal/cli/doctor.go", "go.etcd.io/etcd/server/v3/embed"},
		{"cmd/etcdkit/internal/cli/bench.go", module + "/internal/proof/chaos"},
		{"cmd/etcdkit/internal/cli/conformance.go", "github.com/stretchr/testify/require"},
		{"cmd/etcdkit/internal/guard/keeper_linux.go", module + "/concurrency"},
	} {
		name, imp := of[0], of[1]
		tr := planted(t, map[string]string{name: importing(name, imp)})
		if !slices.ContainsFunc(fences, func(fe fence) bool { return len(fe.breaches(tr)) > 0 }) {
			t.Errorf("no fence stops %s from importing %s", name, imp)
		}
	}

	inOrder := planted(t, map[string]string{
		"concurrency/session.go":                       importing("concurrency/session.go", "go.etcd.io/etcd/client/v3", module+"/internal/lease"),
		"concurrency/session_test.go":                  importing("concurrency/session_test.go", module+"/embedtest", "pgregory.net/rapid"),
		"concurrency/limithttp/limit.go":               importing("concurrency/limithttp/limit.go", "net/http", module+"/concurrency", module+"/concurrency/internal/middleware"),
		"concurrency/internal/middleware/admission.go": importing("concurrency/internal/middleware/admission.go", module+"/concurrency"),
		"idempotency/idemgrpc/idem.go":                 importing("idempotency/idemgrpc/idem.go", "google.golang.org/grpc/codes", module+"/idempotency"),
		"idempotency/idemhttp/idem.go":                 importing("idempotency/idemhttp/idem.go", module+"/idempotency/internal/middleware", module+"/idempotency/internal/rpc"),
		"schedlock/locker.go":                          importing("schedlock/locker.go", module+"/concurrency"),
		"embedtest/start.go":                           importing("embedtest/start.go", "go.etcd.io/etcd/server/v3/embed"),
		"embedtest/etcdfake/server.go":                 importing("embedtest/etcdfake/server.go", "go.etcd.io/etcd/client/v3"),
		"embedtest/etcdfake/permit_test.go":            importing("embedtest/etcdfake/permit_test.go", module+"/concurrency", module+"/embedtest"),
		"idempotency/conformance/run.go":               importing("idempotency/conformance/run.go", "testing", "go.etcd.io/etcd/client/v3"),
		"idempotency/idemtest/run.go":                  importing("idempotency/idemtest/run.go", module+"/idempotency/conformance", module+"/idempotency", module+"/concurrency"),
		"internal/mirror/mirror_test.go":               importing("internal/mirror/mirror_test.go", module+"/embedtest"),
		"internal/proof/chaos/nemesis.go":              importing("internal/proof/chaos/nemesis.go", module+"/embedtest"),
		"examples/fleet/main.go":                       importing("examples/fleet/main.go", module+"/embedtest", module+"/"+sharedByExamples+"/program", "net/http"),
		"console/handler.go":                           importing("console/handler.go", "html/template", "net/http", module+"/concurrency", module+"/internal/engine", module+"/internal/fleet"),
		"console/handler_test.go":                      importing("console/handler_test.go", module+"/embedtest", "github.com/prometheus/client_golang/prometheus"),
		"exporter/exporter.go":                         importing("exporter/exporter.go", "github.com/prometheus/client_golang/prometheus", module+"/internal/fleet"),
		"examples/console/main.go":                     importing("examples/console/main.go", module+"/console", module+"/embedtest"),
		"cmd/etcdkit/main.go":                          importing("cmd/etcdkit/main.go", module+"/cmd/etcdkit/internal/cli", module+"/cmd/etcdkit/internal/guard"),
		"cmd/etcdkit-dev/main.go":                      importing("main/main.go", module+"/embedtest", "go.etcd.io/etcd/server/v3/embed"),
		"cmd/etcdkit/internal/cli/export.go":           importing("cmd/etcdkit/internal/cli/export.go", "github.com/spf13/cobra", "github.com/prometheus/client_golang/prometheus", module+"/console", module+"/exporter", module+"/idempotency/idemtest"),
		"cmd/etcdkit/internal/guard/front_linux.go":    importing("cmd/etcdkit/internal/guard/front_linux.go", "os/exec", "golang.org/x/sys/unix"),
		"integration/go.mod":                           "module elsewhere",
		"integration/gocron/gocron.go":                 importing("integration/gocron/gocron.go", module+"/embedtest"),
		"concurrency/testdata/ignored.go":              importing("concurrency/testdata/ignored.go", module+"/schedlock"),
	})
	for _, fe := range fences {
		if got := fe.breaches(inOrder); len(got) != 0 {
			t.Errorf("%s: a tree in order is refused: %q", fe.name, got)
		}
	}
}

// importing returns the source of a file with the given imports.
func importing(name string, imports ...string) string {
	source := "package " + path.Base(path.Dir(name)) + "\n\n"
	for _, imp := range imports {
		source += fmt.Sprintf("import _ %q\n", imp)
	}
	return source
}
