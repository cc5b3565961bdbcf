package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
)

// attempt is one request for a payment.
type attempt struct {
	order      string
	amount     int
	key        string
	storeFails bool // etcd is unavailable after the charge
}

// naiveWay pays for an order, and returns the provider's receipt.
type naiveWay func(s *server, ctx context.Context, x attempt) (string, error)

// The errors for duplicates.
var (
	errPaid = errors.New("the order is paid")
	errBusy = errors.New("the order is being paid")
)

// The other ways, by the last but one element of the path.
const (
	byNothing = "no-guard"
	byFlag    = "flag"
	byStatus  = "status"
	byUnique  = "unique-key"
	byVersion = "version"
	byLock    = "lock"
	byMarker  = "marker"
)

var naiveWays = map[string]naiveWay{
	byNothing: (*server).noGuard,
	byFlag:    (*server).flag,
	byStatus:  (*server).status,
	byUnique:  (*server).unique,
	byVersion: (*server).version,
	byLock:    (*server).lock,
	byMarker:  (*server).marker, // marker.go
}

// payNaively is the handler of a way.
func (s *server) payNaively(way naiveWay) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in payment
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			backend.Reply(w, http.StatusBadRequest, err.Error())
			return
		}
		x := attempt{r.PathValue("order"), in.Amount, strings.Trim(r.Header.Get("Idempotency-Key"), `"`), r.Header.Get(failStoreHeader) != ""}
		paid, err := way(s, r.Context(), x)
		switch {
		case errors.Is(err, errPaid), errors.Is(err, errBusy):
			backend.Reply(w, http.StatusConflict, err.Error())
		case errors.Is(err, errDeclined), errors.Is(err, errNoAnswer):
			backend.Reply(w, http.StatusBadGateway, err.Error())
		case err != nil:
			backend.Reply(w, http.StatusInternalServerError, err.Error())
		default:
			backend.Reply(w, http.StatusCreated, receipt{Order: x.order, Amount: x.amount, Charge: paid, Server: s.Name})
		}
	}
}

// work charges the order, and marks it as paid if ifs are true.
func (s *server) work(ctx context.Context, x attempt, o order, ifs ...clientv3.Cmp) (string, error) {
	paid, err := s.bank.charge(ctx, charge{x.order, x.amount, s.Name}, "")
	if err != nil {
		return "", err
	}
	o.Paid = paid
	resp, err := s.client.Txn(ctx).If(ifs...).Then(clientv3.OpPut(s.orderKey(x.order), o.String())).Commit()
	if err == nil && !resp.Succeeded {
		err = errPaid
	}
	return paid, err
}

// open returns an order. It returns errPaid if the order is paid.
func (s *server) open(ctx context.Context, x attempt) (order, error) {
	o, err := s.load(ctx, x.order)
	if err == nil && o.Paid != "" {
		err = errPaid
	}
	return o, err
}

func (s *server) noGuard(ctx context.Context, x attempt) (string, error) {
	o, err := s.load(ctx, x.order)
	if err != nil {
		return "", err
	}
	return s.work(ctx, x, o)
}

// flag keeps a flag for each order that is being paid, in the memory of the process.
func (s *server) flag(ctx context.Context, x attempt) (string, error) {
	if _, busy := s.busy.LoadOrStore(x.order, true); busy {
		return "", errBusy
	}
	defer s.busy.Delete(x.order)
	o, err := s.open(ctx, x)
	if err != nil {
		return "", err
	}
	return s.work(ctx, x, o)
}

// unchanged returns the condition that the order was not changed since it was read.
func (s *server) unchanged(x attempt, o order) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.orderKey(x.order)), "=", o.revision)
}

// status sets the order's status to paid only if it is open.
func (s *server) status(ctx context.Context, x attempt) (string, error) {
	o, err := s.open(ctx, x)
	if err != nil {
		return "", err
	}
	return s.work(ctx, x, o, s.unchanged(x, o))
}

// unique creates a bill before it charges; an order has one bill at most.
func (s *server) unique(ctx context.Context, x attempt) (string, error) {
	bill := s.space() + "bill/" + x.order
	resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(bill), "=", 0)).Then(clientv3.OpPut(bill, x.key)).Commit()
	if err != nil {
		return "", err
	}
	if !resp.Succeeded {
		return "", errPaid
	}
	o, err := s.load(ctx, x.order)
	if err != nil {
		return "", err
	}
	return s.work(ctx, x, o)
}

// version is status, with three retries if another request was faster.
func (s *server) version(ctx context.Context, x attempt) (paid string, err error) {
	for range 1 + 3 {
		var o order
		if o, err = s.open(ctx, x); err != nil {
			return "", err // mostly errPaid, after it has charged
		}
		if paid, err = s.work(ctx, x, o, s.unchanged(x, o)); !errors.Is(err, errPaid) {
			break
		}
	}
	return paid, err
}

// lock holds a mutex for the order during the work. The mutex itself is correct.
func (s *server) lock(ctx context.Context, x attempt) (paid string, err error) {
	mu, err := concurrency.NewMutex(s.sess, x.order)
	if err != nil {
		return "", err
	}
	err = mu.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
		o, err := s.open(ctx, x)
		if err == nil {
			paid, err = s.work(ctx, x, o)
		}
		return err
	})
	return paid, err
}
