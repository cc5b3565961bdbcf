package console_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.yaml.in/yaml/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// pair and pairs are the labels of an alert, as a template of Alertmanager has them.
type pair struct{ Name, Value string }
type pairs map[string]string

// SortedPairs returns the labels.
func (p pairs) SortedPairs() (all []pair) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, pair{name, p[name]})
	}
	return all
}

// alertsOf returns the labels of all alerts that the tests of the rules expect.
func alertsOf(t *testing.T) (all []pairs) {
	t.Helper()
	files, err := filepath.Glob("../docs/observability/*alerts_test.yaml")
	require.NoError(t, err)
	for _, file := range files {
		var tests struct {
			Tests []struct {
				Rules []struct {
					Alert  string `yaml:"alertname"`
					Alerts []struct {
						Labels pairs `yaml:"exp_labels"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &tests))
		for _, one := range tests.Tests {
			for _, rule := range one.Rules {
				for _, a := range rule.Alerts {
					a.Labels["alertname"] = rule.Alert
					all = append(all, a.Labels)
				}
			}
		}
	}
	return all
}

// rulesOf returns the names of all rules.
func rulesOf(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range []string{"alerts.yaml", "fleet_alerts.yaml"} {
		text, err := os.ReadFile("../docs/observability/" + file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
	}
	return all
}

// Each rule leads somewhere: to its name, which its labels have with the kind, or to a page of its own; and no page is of a rule
// that does not exist.
func TestEachRuleHasAPage(t *testing.T) {
	t.Parallel()
	rules, led := rulesOf(t), map[string]bool{}
	require.Greater(t, len(rules), 40)
	for _, labels := range alertsOf(t) {
		alert := labels["alertname"]
		if labels["etcdkit_name"] != "" {
			require.NotEmpty(t, labels["etcdkit_kind"], "%s: a search may find nothing", alert)
		}
		led[alert] = true
	}
	for alert := range rules {
		require.True(t, led[alert], "no unit test shows the labels of %s", alert)
	}
	for alert, page := range console.PagesOf {
		require.True(t, rules[alert], "%s leads to %s", alert, page)
	}
}

// An election that has no candidate any more has no key: its alert leads to its page, which says so, and not to a search that
// finds nothing.
func TestElectionGoneLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	for _, labels := range alertsOf(t) {
		if labels["alertname"] != "EtcdkitElectionGone" {
			continue
		}
		labels["etcdkit_namespace"] = "test"
		a := s.get(strings.TrimPrefix(linkOf(t, labels, s.url), s.url))
		require.Equal(t, "queue?"+url.Values{"name": {"election/" + labels["etcdkit_name"]}}.Encode(), a.Header.Get("Location"))
		shown := s.get("/" + a.Header.Get("Location"))
		require.Equal(t, http.StatusOK, shown.StatusCode)
		require.Contains(t, shown.body, "etcd has nothing of it")
		return
	}
	t.Fatal("the rules have no EtcdkitElectionGone")
}

// linkOf returns the link of an alert, by the template of docs/observability.md.
func linkOf(t *testing.T, labels pairs, base string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^    (\{\{ range \.Alerts \}\}.*)$`).FindSubmatch(page)
	require.NotNil(t, text, "the page has the template")
	tmpl, err := template.New("").Parse(strings.Replace(string(text[1]), "https://ops.example.com/etcdkit", base, 1))
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, tmpl.Execute(&out, map[string]any{"Alerts": []any{map[string]any{"Labels": labels}}}))
	return strings.TrimSpace(out.String())
}

// Each alert of the rules leads to the page of what its labels name (A217 in internal/proof/tested-failures.md).
func TestEachAlertLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	s.acquire(s.semaphore("web-7", "charge", 1))
	_ = s.job("invoices", nil)
	_ = s.lose("orders", "K-1")
	alerts := alertsOf(t)
	require.Greater(t, len(alerts), 40)
	led, unknown := map[string]int{}, 0
	for _, labels := range alerts {
		name, kind := labels["etcdkit_name"], labels["etcdkit_kind"]
		if labels["etcdkit_namespace"] != "" {
			labels["etcdkit_namespace"] = "test"
		}
		link := linkOf(t, labels, s.url)
		a := s.get(strings.TrimPrefix(link, s.url))
		require.Equal(t, http.StatusSeeOther, a.StatusCode, "%s: %s", link, a.body)
		to := a.Header.Get("Location")
		page, _, _ := strings.Cut(to, "?")
		led[page]++
		if kind == "limiter_total" {
			kind = "limiter"
		}
		switch {
		case labels["alertname"] == "EtcdkitProcessDied":
			require.Equal(t, "search?"+url.Values{"q": {labels["etcdkit_owner"]}}.Encode(), to, labels)
		case name == "":
			require.Equal(t, cmp.Or(console.PagesOf[labels["alertname"]], "./"), to, labels)
		case labels["alertname"] == "EtcdkitForeignKeys" && kind == "job": // its page does not show them
			require.Equal(t, "doctor", to)
			continue
		case kind == "job":
			require.Equal(t, "job?"+url.Values{"name": {name}}.Encode(), to)
		case kind == "store":
			only := ""
			if strings.Contains(labels["alertname"], "Unknown") {
				only, unknown = "&only=refused", unknown+1
			}
			if strings.Contains(labels["alertname"], "Unreadable") { // A415: it led to those of unknown outcome
				only = fmt.Sprintf("&state=%d", idempotency.Unreadable)
			}
			require.Equal(t, "store?"+url.Values{"name": {name}}.Encode()+only, to)
		case kind != "":
			require.Equal(t, "queue?"+url.Values{"name": {kind + "/" + name}}.Encode(), to)
		}
		shown := s.get(path.Join("/", page) + strings.TrimPrefix(to, page))
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, shown.StatusCode, to) // of a job that is not here
		require.Contains(t, shown.body, name, to)
	}
	require.GreaterOrEqual(t, unknown, 2)
	for _, page := range []string{"./", "queue", "store", "job", "doctor", "sessions"} {
		require.Positive(t, led[page], "%s of %v", page, led)
	}
}

// The labels of an alert without a kind lead to the one thing that has the name, and to a search for it if there are several
// or none. A viewer is led to nothing that it may not read.
func TestAlertWithoutAKind(t *testing.T) {
	t.Parallel()
	denied := ""
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if denied != "" && a.Name == denied {
			return errors.New("that is not yours")
		}
		return nil
	}})
	s.acquire(s.semaphore("web-7", "charge", 1))
	s.acquire(s.semaphore("web-7", "both", 1))
	_ = s.job("both", nil)
	_ = s.job("invoices", nil)
	_ = s.lose("orders", "K-1")
	leads := func(query, to string) {
		t.Helper()
		a := s.get("/alert?" + query)
		require.Equal(t, http.StatusSeeOther, a.StatusCode, a.body)
		require.Equal(t, to, a.Header.Get("Location"))
	}
	leads("etcdkit_name=charge", "queue?name=semaphore%2Fcharge")
	leads("etcdkit_name=invoices&etcdkit_namespace=test", "job?name=invoices")
	leads("etcdkit_name=orders", "store?name=orders")
	leads("etcdkit_name=orders&alertname=EtcdkitUnknownRequests", "store?name=orders&only=refused")
	leads("etcdkit_name=orders&format=json", "store?name=orders&format=json")
	leads("alertname=EtcdkitClocksDiffer&format=json", "sessions?show=clock&format=json")
	leads("format=json", "./?format=json")
	leads("etcdkit_kind=job&format=json", "jobs?format=json")
	leads("etcdkit_name=both", "search?q=both")
	leads("etcdkit_name=none", "search?q=none")
	leads("etcdkit_name=_other&etcdkit_kind=limiter_total", "queues?kind=limiter")
	leads("etcdkit_kind=limiter_total&etcdkit_name=api", "queue?name=limiter%2Fapi")
	leads("etcdkit_kind=job", "jobs")
	leads("etcdkit_kind=store", "stores")
	leads("etcdkit_kind=election", "elections")
	leads("etcdkit_kind=rate&etcdkit_name=mails", "queue?name=rate%2Fmails")
	require.Equal(t, http.StatusBadRequest, s.get("/alert?etcdkit_kind=pod&etcdkit_name=charge").StatusCode)
	require.Equal(t, http.StatusBadRequest, s.get("/alert?etcdkit_name="+strings.Repeat("x", 4096)).StatusCode)

	denied = "semaphore/both"
	leads("etcdkit_name=both", "job?name=both")
	require.Equal(t, http.StatusForbidden, s.get("/alert?etcdkit_kind=semaphore&etcdkit_name=both").StatusCode)
	denied = "semaphore/charge"
	leads("etcdkit_name=charge", "search?q=charge")
}

// The alert of another namespace leads to its console, if the program has one, and nowhere if etcd has no such namespace,
// whatever a program would make of the name.
func TestAlertOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	var asked []string
	there := "../billing"
	s := open(t, "/ops", &console.Options{Elsewhere: func(namespace string) string {
		asked = append(asked, namespace)
		return there
	}})
	client := s.NewClient(t, nil)
	other, err := concurrency.NewSession(testkit.Context(t), client.Client, "billing", &concurrency.SessionOptions{Prefix: s.Root})
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close(testkit.Context(t)) })
	const labels = "etcdkit_kind=semaphore&etcdkit_name=charge&etcdkit_namespace="
	a := s.get("/alert?" + labels + "billing")
	require.Equal(t, http.StatusSeeOther, a.StatusCode, a.body)
	require.Equal(t, "../billing/alert?"+labels+"billing", a.Header.Get("Location"))
	require.Equal(t, []string{"billing"}, asked)
	for _, namespace := range []string{"evil.example", "//evil.example", "billing/../x"} {
		a = s.get("/alert?" + labels + url.QueryEscape(namespace))
		require.Equal(t, http.StatusNotFound, a.StatusCode, fmt.Sprint(a.Header))
	}
	require.Equal(t, []string{"billing"}, asked, "of other namespaces a program is not asked")
	there = ""
	require.Equal(t, http.StatusNotFound, s.get("/alert?"+labels+"billing").StatusCode)
}

// A viewer without any right starts no watch of the namespace by an alert, and does not learn which namespaces exist
// (A227 in internal/proof/tested-failures.md).
func TestAlertsAskFirst(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Elsewhere: func(string) string { return "../billing" }, Authorize: func(*http.Request, console.Action) error { return errors.New("not for you") }})
	client := s.NewClient(t, nil)
	_, err := client.Put(testkit.Context(t), strings.TrimSuffix(s.Root, "/")+"/v1/billing/semaphore/x/limit", "x")
	require.NoError(t, err)
	sessions := strings.TrimSuffix(s.Root, "/") + "/v1/test/session/" // of which the console's own session reads by itself
	reads := s.etcd.Inject(embedtest.Fault{Method: "Range", Times: -1, Do: embedtest.Pass, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.RangeRequest)
		return ok && !strings.HasPrefix(string(r.GetKey()), sessions)
	}})
	for _, labels := range []string{"name=charge", "namespace=billing", "namespace=none"} {
		a := s.get("/alert?etcdkit_" + labels)
		require.Equal(t, http.StatusForbidden, a.StatusCode, labels)
	}
	require.Zero(t, reads.Hits())
}

// The alert of a namespace that was made a moment ago leads to its console, and so does one of a namespace whose keys the role
// of this console may not read.
func TestAlertOfANamespaceThatIsNotListed(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Elsewhere: func(namespace string) string { return "../" + namespace }})
	leads := func(namespace string, status int) {
		t.Helper()
		a := s.get("/alert?etcdkit_kind=job&etcdkit_name=j&etcdkit_namespace=" + url.QueryEscape(namespace))
		require.Equal(t, status, a.StatusCode, a.body)
	}
	leads("none", http.StatusNotFound)
	_, err := s.NewClient(t, nil).Put(testkit.Context(t), strings.TrimSuffix(s.Root, "/")+"/v1/billing/semaphore/x/limit", "x")
	require.NoError(t, err)
	leads("billing", http.StatusSeeOther)
	s.etcd.Inject(embedtest.Fault{Method: "Range", Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	leads("orders", http.StatusSeeOther)
	leads("//orders", http.StatusNotFound)
}

// A438: an alert of another cluster led to what has the same name in this one, with its actions.
func TestAlertOfAnotherCluster(t *testing.T) {
	t.Parallel()
	const alert = "/alert?etcdkit_namespace=test&etcdkit_kind=semaphore&etcdkit_name=charge&etcdkit_cluster="
	s := open(t, "", &console.Options{Cluster: "eu"})
	require.Contains(t, s.page("/"), "<bdi>eu</bdi>")
	for cluster, want := range map[string]int{"": http.StatusSeeOther, "eu": http.StatusSeeOther, "us": http.StatusNotFound} {
		require.Equal(t, want, s.get(alert+cluster).StatusCode, cluster)
	}
	require.Contains(t, s.get(alert+"us").body, "open the console of that cluster")
	require.Equal(t, http.StatusSeeOther, open(t, "", nil).get(alert+"us").StatusCode, "without a name of its own")
}
