package integration

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/etcdkit/etcdkit/idempotency"
)

// once is a middleware of watermill: a handler executes once for each message of a topic, however often the
// message is delivered.
//
// The key is the message's ID, which its publisher keeps when it publishes again. Topic, partition and offset
// would be another key for the second copy.
//
// The router acknowledges a message after its handler has returned and its results are published, so after the
// outcome is recorded or replayed. An error is a nack, and the queue delivers again, after the
// delay that its subscriber is set to.
func once(st *idempotency.Store, topic string) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			key := idempotency.Key{Op: topic, ID: msg.UUID}
			res, err := idempotency.Do(msg.Context(), st, key, []byte(msg.Payload), func(ctx context.Context, _ *idempotency.Attempt) (out []result, err error) {
				own := msg.Copy()
				own.SetContext(ctx) // the attempt's: for child keys, and so that a shutdown does not interrupt it
				made, err := next(own)
				for _, m := range made {
					out = append(out, result{m.UUID, m.Metadata, m.Payload})
				}
				return out, err
			},
				idempotency.LikelyNew(),                  // most messages are delivered once
				idempotency.Wait(10*time.Second),         // another consumer has it, after a rebalance: then a nack
				idempotency.OnLost(idempotency.TakeOver), // a consumer died: the next one goes on with the same child keys
			)
			if err != nil {
				return nil, err
			}
			var all []*message.Message
			for _, r := range res.Value { // a replay publishes the same messages again, with the same IDs
				m := message.NewMessage(r.ID, r.Payload)
				m.Metadata = r.Metadata
				all = append(all, m)
			}
			return all, nil
		}
	}
}

// result is what is recorded of a message: a message.Message has fields that no JSON keeps.
type result struct {
	ID       string
	Metadata map[string]string
	Payload  []byte
}

// hopeless reports whether another delivery would end in the same way: docs/integrations.md has the reasons.
func hopeless(err error) bool {
	for _, final := range []error{
		idempotency.ErrFailed, idempotency.ErrMismatch, idempotency.ErrUnknown,
		idempotency.ErrOmitted, idempotency.ErrInvalid, idempotency.ErrUnreadable,
		idempotency.ErrTooLarge,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// A consumer of orders. One order is published twice, one meets a provider that is down, and one can never be
// paid: it goes to a queue of its own when it is delivered again, and does not block the others.
func Example_watermill() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := openShop(ctx)
	defer s.stop()
	st := must(idempotency.NewStore(s.first, "orders", &idempotency.Options{
		SingleTenant: true,
		Retain:       14 * 24 * time.Hour, // longer than the queue can deliver a message again
	}))

	queue := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil) // in a program: Kafka, SQS, …
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	cards, down := &provider{charges: map[string]string{}}, true
	orders := router.AddHandler("charge", "orders", queue, "receipts", queue, func(msg *message.Message) ([]*message.Message, error) {
		a, _ := idempotency.FromContext(msg.Context())
		switch order := string(msg.Payload); {
		case order == "an order without a card":
			return nil, idempotency.Permanent(errors.New("no card"))
		case order == "order 2" && down:
			down = false
			return nil, errors.New("the provider is down")
		}
		receipt := cards.charge(a.ChildKey("charge"))
		return []*message.Message{message.NewMessage("receipt of "+msg.UUID, []byte(receipt))}, nil
	})
	orders.AddMiddleware(must(wmiddleware.PoisonQueueWithFilter(queue, "poison", hopeless)), once(st, "orders"))
	show := func(msg *message.Message) error {
		fmt.Printf("%s: %s\n", msg.UUID, msg.Payload)
		return nil
	}
	router.AddConsumerHandler("mail", "receipts", queue, show) // behind once, too, each receipt would be mailed once
	router.AddConsumerHandler("operators", "poison", queue, show)
	go func() {
		if err := router.Run(ctx); err != nil {
			log.Print(err)
		}
	}()
	<-router.Running()

	for _, order := range []*message.Message{
		message.NewMessage("id-1", []byte("order 1")),
		message.NewMessage("id-1", []byte("order 1")), // the publisher had no answer, and has published it again
		message.NewMessage("id-2", []byte("order 2")),
		message.NewMessage("id-3", []byte("an order without a card")),
	} {
		if err := queue.Publish("orders", order); err != nil { // returns when the message is acknowledged
			log.Fatal(err)
		}
	}
	fmt.Println("charges:", len(cards.charges))
	_ = router.Close()
	// Output:
	// receipt of id-1: receipt 1
	// receipt of id-1: receipt 1
	// receipt of id-2: receipt 2
	// id-3: an order without a card
	// charges: 2
}
