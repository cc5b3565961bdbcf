// Leader is an instance of a service: start it as often as you like, one of them leads. On Ctrl-C or SIGTERM the leader
// ends its pass and resigns, and only then the next one leads. `etcdkit elections -N quickstart` lists it.
//
//	go run ./examples/quickstart/leader
//	go run ./examples/quickstart/leader -endpoints 127.0.0.1:2379 -address 10.0.0.7:4000
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var address = flag.String("address", "127.0.0.1:4000", "where others reach this instance while it leads")

func main() { program.Main("quickstart", run) }

func run(sigterm context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(sigterm, 5*time.Second) // without a deadline, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", &concurrency.SessionOptions{Hooks: program.Hooks(sigterm)}) // its TTL, 15 s: until a crashed leader is replaced
	if err != nil {
		return err
	}
	el, err := concurrency.NewElection(sess, "reports")
	if err != nil {
		return err
	}
	if err = el.Lead(sigterm, lead, concurrency.Note(*address)); sigterm.Err() != nil { // Leader and Watch return the note
		err = nil // it was asked to stop, and has resigned
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(sigterm), 10*time.Second)
	defer cancel()
	if err := sess.Close(closing); err != nil {
		log.Print(err) // etcd is away: the lease expires, and the next one leads then
	}
	return err
}

// lead is called for each term, and returns soon after ctx has ended. After a loss or a StepDown Lead campaigns again. If
// lead returns in a good term, nil or an error, Lead ends: this instance is no candidate any more. So when a target refuses
// term.Token() as too old, or etcd term.Guard() in a Txn, wait for <-ctx.Done(): the session may learn of the loss later.
func lead(ctx context.Context, term *concurrency.Permit) error {
	log.Print("leads: the term begins, with token ", term.Token())
	for ctx.Err() == nil && term.Err() == nil { // after a pause of the process, term.Err reports a loss before ctx does
		if err := program.Work(ctx, "a pass", time.Second/2); err != nil { // ends early if ctx does
			log.Print("a pass was not completed: ", err)
		}
	}
	log.Print("the term has ended: ", cmp.Or(context.Cause(ctx), term.Err()))
	return nil
}
