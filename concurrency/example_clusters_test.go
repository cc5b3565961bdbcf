package concurrency_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Clusters are the sessions of this process, by the label of each cluster.
type Clusters map[string]*concurrency.Session

// Of returns the session on which a name lives: in every process the same cluster, if all have the same labels. With a
// cluster more, only the names that move there change their cluster.
func (c Clusters) Of(name string) *concurrency.Session {
	return c[labelOf(slices.Collect(maps.Keys(c)), name)]
}

// labelOf returns the label with the greatest hash beside the name (rendezvous hashing).
func labelOf(labels []string, name string) (best string) {
	var most uint64
	for _, label := range labels {
		sum := sha256.Sum256([]byte(label + "\x00" + name))
		if n := binary.BigEndian.Uint64(sum[:]); best == "" || n > most {
			best, most = label, n
		}
	}
	return best
}

// agree returns an error if a process that shares a cluster with this one has other labels, or another cluster under one of
// them: a name would have two queues then, and its limit twice. Each cluster stores all labels, with the ClusterId of each
// (so give clusters different values of etcd's --initial-cluster-token, and restore each with its own). Call it before the
// first name is used.
func agree(ctx context.Context, clients map[string]*clientv3.Client) error {
	const key = "/payments/clusters"
	labels := slices.Sorted(maps.Keys(clients))
	var all []string
	for _, label := range labels {
		r, err := clients[label].Get(ctx, key, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprintf("%s=%x", label, r.Header.ClusterId))
	}
	mine := strings.Join(all, ",")
	for _, label := range labels {
		r, err := clients[label].Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, mine)).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if !r.Succeeded {
			if stored := string(r.Responses[0].GetResponseRange().Kvs[0].Value); stored != mine {
				return fmt.Errorf("agree on clusters by the key %s of cluster %s: %s (after a restore delete this key on all clusters)", key, label, differ(stored, mine))
			}
		}
	}
	return nil
}

// differ returns the labels whose clusters differ, with both IDs.
func differ(stored, mine string) string {
	there, here := idsOf(stored), idsOf(mine)
	all := maps.Clone(there)
	maps.Copy(all, here)
	var found []string
	for _, label := range slices.Sorted(maps.Keys(all)) {
		if there[label] != here[label] {
			found = append(found, fmt.Sprintf("label %s has the cluster ID %q there and %q in this process", label, there[label], here[label]))
		}
	}
	return strings.Join(found, ", ")
}

// idsOf returns the IDs of clusters by label.
func idsOf(text string) map[string]string {
	ids := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		label, id, _ := strings.Cut(pair, "=")
		ids[label] = id
	}
	return ids
}

// Names on several clusters: each name lives on one of them, so its limit is as strict as on a single one. All processes
// need the same map.
func Example_clusters() {
	ctx := context.Background()
	clients := map[string]*clientv3.Client{}
	sessions := Clusters{}
	for _, label := range []string{"a", "b"} {
		etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New, with the endpoints of that cluster
		if err != nil {
			log.Fatal(err)
		}
		defer etcd.Close()
		clients[label] = etcd.Client()
		if sessions[label], err = concurrency.NewSession(ctx, clients[label], "payments", nil); err != nil {
			log.Fatal(err)
		}
		defer sessions[label].Close(ctx)
	}
	if err := agree(ctx, clients); err != nil {
		log.Fatal(err)
	}

	for _, name := range []string{"charge", "settle"} {
		sem, err := concurrency.NewSemaphore(sessions.Of(name), name, 10, nil)
		if err != nil {
			log.Fatal(err)
		}
		err = sem.Do(ctx, func(context.Context, *concurrency.Permit) error {
			fmt.Println(name, "is on", labelOf([]string{"a", "b"}, name))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	third := maps.Clone(clients)
	third["c"] = clients["b"] // a process that was deployed with a third cluster
	fmt.Println("a third cluster is refused:", agree(ctx, third) != nil)
	// Output:
	// charge is on b
	// settle is on a
	// a third cluster is refused: true
}
