package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// The parameters of the address that an alert leads to are the labels of the metrics. All others are ignored, so a
// template can pass each label that an alert has.
const (
	ofCluster   = "etcdkit_cluster"
	ofNamespace = "etcdkit_namespace"
	ofKind      = "etcdkit_kind"
	ofName      = "etcdkit_name"
	ofOwner     = "etcdkit_owner"
	ofAlert     = "alertname"
)

// pagesOf are the pages of the delivered alerts that are about no name.
var pagesOf = map[string]string{
	"EtcdkitClocksDiffer":        "sessions?show=clock",
	"EtcdkitSessionLost":         "sessions?sort=new",
	"EtcdkitSessionNotRecovered": "doctor",
	"EtcdkitRenewalsLate":        "doctor",
	"EtcdkitUnavailable":         "doctor",
	"EtcdkitNearQuota":           "doctor",
	"EtcdkitExporterDown":        "doctor",
	ofForeign:                    "doctor",
}

// ofForeign is the delivered alert on foreign keys.
const ofForeign = "EtcdkitForeignKeys"

// ofUnknown are the delivered alerts on requests that wait for an operator, which their page shows alone.
var ofUnknown = []string{"EtcdkitUnknownRequests", "EtcdkitUnknownRequestsOfOneScope", "EtcdkitRequestsUnknown"}

// Kinds of the metrics that are no kinds of queues.
const (
	kindJob    = "job"
	kindStore  = "store"
	kindTotal  = "limiter_total"
	otherNames = "_other" // what otelkit and promkit report of names beyond their MaxNames
)

// place is a page, and the name that Authorize is asked about.
type place struct{ href, subject string }

// alert is what the labels of an alert name.
type alert struct {
	request
	cluster               string // each may be ""
	namespace, kind, name string
	owner, alert          string
}

func alertOf(q request) alert {
	label := q.URL.Query().Get
	return alert{q, label(ofCluster), label(ofNamespace), label(ofKind), label(ofName), label(ofOwner), label(ofAlert)}
}

// lead sends a browser to the page of what an alert is about: in this namespace, or in the console of another one.
func (a alert) lead(w http.ResponseWriter) {
	c := a.console
	find := a.here
	if own := c.opts.Cluster; a.cluster != "" && own != "" && a.cluster != own {
		find = a.ofCluster
	} else if _, own := c.inner.Space().Parts(); a.namespace != "" && a.namespace != own {
		find = a.elsewhere
	}
	at, err := find()
	if err == nil {
		if no := c.opts.may(a.Request, Action{Verb: Read, Name: at.subject}); no != nil {
			err = forbidden{no}
		}
	}
	if err != nil {
		c.refuse(w, a.Request, status(err), err)
		return
	}
	w.Header().Set("Location", at.href) // it is relative: the handler does not know its path
	w.WriteHeader(http.StatusSeeOther)
}

// ofCluster returns an error for an alert of another cluster, whose names are not those here.
func (a alert) ofCluster() (place, error) {
	if no := a.console.opts.may(a.Request, Action{Verb: Read}); no != nil {
		return place{}, forbidden{no}
	}
	return place{}, notFound{fmt.Errorf("the alert is about the cluster %q, and this console shows %q: open the console of that cluster", a.cluster, a.console.opts.Cluster)}
}

// here returns the page of what the labels name, in the form that is asked for.
func (a alert) here() (place, error) {
	at, err := a.meant()
	if at.subject == "requests/"+a.name && slices.Contains(ofUnknown, a.alert) {
		at.href = refusedOf(a.name)
	}
	if at.subject == "requests/"+a.name && a.alert == "EtcdkitUnreadableRequests" {
		at.href = unreadableOf(a.name)
	}
	if a.URL.Query().Get("format") == "json" {
		page, query, _ := strings.Cut(at.href, "?")
		at.href = page + "?" + strings.TrimPrefix(query+"&format=json", "&")
	}
	return at, err
}

// meant returns the page of what the labels name.
func (a alert) meant() (place, error) {
	if err := checkName(a.name); err != nil {
		return place{}, err
	}
	switch {
	case a.name == "" && a.kind == "" && pagesOf[a.alert] != "":
		return place{href: pagesOf[a.alert]}, nil
	case a.name == "" && a.alert == "EtcdkitProcessDied" && a.owner != "":
		return searchFor(a.owner), nil
	case a.alert == ofForeign && a.kind == kindJob: // the doctor names such keys
		return place{href: "doctor"}, nil
	case a.name == "" || a.name == otherNames:
		return place{href: listOf(a.kind)}, nil
	case a.kind == "":
		return a.anyKind(), nil
	}
	return placeOf(a.kind, a.name)
}

// listOf returns the page that lists what is of a kind, or the overview.
func listOf(kind string) string {
	switch kind {
	case kindJob:
		return "jobs"
	case kindStore:
		return "stores"
	case string(concurrency.KindElection):
		return "elections"
	case "":
		return "./"
	}
	return "queues?" + url.Values{"kind": {strings.TrimSuffix(kind, "_total")}}.Encode()
}

// placeOf returns the page of a name of a kind, as the metrics have them.
func placeOf(kind, name string) (place, error) {
	switch kind {
	case kindJob:
		return place{pageOf("job", name), "job/" + name}, nil
	case kindStore:
		return place{pageOf("store", name), "requests/" + name}, nil
	case kindTotal:
		kind = string(concurrency.KindLimiter)
	}
	s, err := parse(kind + "/" + name)
	if err != nil {
		return place{}, badRequest{fmt.Errorf("the labels name nothing: %w", err)}
	}
	return place{pageOf("queue", s.String()), s.String()}, nil
}

// searchFor returns the page of what has a text.
func searchFor(text string) place {
	return place{href: "search?" + url.Values{"q": {text}}.Encode()}
}

// anyKind returns the page of what has the name, or the search for it if that is not one thing: not each alert has a kind. It
// reads nothing if Authorize permits no page of that name.
func (a alert) anyKind() place {
	search := searchFor(a.name)
	readable := map[string]place{} // by kind
	mayRead := a.reader()
	kinds := []string{kindJob, kindStore}
	for _, kind := range queueKinds() {
		kinds = append(kinds, kind.name)
	}
	for _, kind := range kinds {
		if at, err := placeOf(kind, a.name); err == nil && mayRead(at.subject) {
			readable[kind] = at
		}
	}
	if len(readable) == 0 {
		return search
	}
	queues, _, ofQueues := look(a.request, "queues", queuesSeen(a.console))
	jobs, _, ofJobs := look(a.request, "jobs", jobsOf)
	stores, _, ofStores := look(a.request, "stores", storesOf)
	if ofQueues != nil || ofJobs != nil || ofStores != nil {
		return search // which says why
	}
	var all []place
	add := func(kind string) {
		if at, ok := readable[kind]; ok {
			all = append(all, at)
		}
	}
	for _, r := range queues {
		if r.Name == r.Kind+"/"+a.name {
			add(r.Kind)
		}
	}
	if slices.ContainsFunc(jobs, func(r jobRow) bool { return r.Name == a.name }) {
		add(kindJob)
	}
	if slices.ContainsFunc(stores, func(r storeRow) bool { return r.Name == a.name }) {
		add(kindStore)
	}
	if len(all) != 1 {
		return search
	}
	return all[0]
}

// elsewhere returns the address of the same alert in the console of another namespace, if Authorize permits the overview,
// which names them. A program is not asked for the console of a namespace that etcd does not have; if etcd does not say so,
// since a role permits this console's namespace alone, the name has passed the check of names.
func (a alert) elsewhere() (place, error) {
	if no := a.console.opts.may(a.Request, Action{Verb: Read}); no != nil {
		return place{}, forbidden{no}
	}
	missing := notFound{fmt.Errorf("the alert is about the namespace %q, of which there is no console here", a.namespace)}
	prefix, _ := a.console.inner.Space().Parts()
	other, err := keyspace.New(prefix, a.namespace)
	link := a.console.opts.Elsewhere
	if err != nil || link == nil {
		return place{}, missing
	}
	exists, _, err := read(a.request, "namespace/"+a.namespace, func(ctx context.Context) (bool, error) {
		resp, err := a.console.inner.Read(ctx, other.Root(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if commit.Denied(err) {
			return true, nil
		}
		return err == nil && len(resp.Kvs) > 0, err
	})
	if err != nil {
		return place{}, err
	}
	if !exists {
		return place{}, missing
	}
	at := link(a.namespace)
	if at == "" {
		return place{}, missing
	}
	return place{href: strings.TrimSuffix(at, "/") + "/alert?" + a.URL.RawQuery}, nil
}
