package trial

import (
	"context"

	"github.com/etcdkit/etcdkit/concurrency"
)

// What tests with an etcd reach.
type (
	Scratch = scratch
	Kept    = kept
)

var (
	InScratch      = inScratch
	Brisk          = brisk
	LimitIsKept    = limitIsKept
	TryAll         = tryAll
	ReportPromises = reportPromises
)

// NewKept returns a promise that is tested by a function.
func NewKept(of, name, text, result string, try func(context.Context) error) *Kept {
	return &kept{Of: of, Name: name, Text: text, Result: result, try: try}
}

// Session opens a session in the scratch.
func (s *scratch) Session(ctx context.Context, owner string) (*concurrency.Session, error) {
	return s.session(ctx, brisk(owner))
}

// Grant asks for a lease with the client of the first session.
func (s *scratch) Grant(ctx context.Context) error {
	_, err := s.clients[0].Grant(ctx, 600)
	return err
}

// Leases are those that were asked for.
func (s *scratch) Leases() (all []int64) {
	for id := range s.leases {
		all = append(all, id)
	}
	return all
}
