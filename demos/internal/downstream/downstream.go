// Package downstream is the service that the demos of limits protect: slow, and with a count of its
// own of how many calls run at the same time. It does not trust its callers: a call runs to its end
// even if its caller has left.
package downstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// Service is the downstream service.
type Service struct {
	mu   sync.Mutex
	busy map[string]int // calls that run, by user
	book Book
}

// Book is what the service has counted since the last reset.
type Book struct {
	Now    int            `json:"now"`  // calls that run
	Peak   int            `json:"peak"` // the most calls that ran at the same time
	Peaks  map[string]int `json:"peaks"`
	Calls  int            `json:"calls"`
	Late   int            `json:"late"`   // calls that were refused: their permits had ended
	Levels []Level        `json:"levels"` // since the service began, not the last reset
}

// Level is how many calls run from a moment of hostclock on.
type Level struct {
	At int64 `json:"at"`
	N  int   `json:"n"`
}

// validUntil is the header with the deadline of the caller's permit, by hostclock. A call that
// arrives later, because its caller was paused after it had checked its permit, is refused.
const validUntil = "Valid-Until"

// New returns a service without calls.
func New() *Service {
	return &Service{busy: map[string]int{}, book: Book{Peaks: map[string]int{}}}
}

// Handler returns the handler of the service: work is done by POST /work/{user} for the time of the
// query's "for", and the book is read by GET /book, and reset by POST /book.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /work/{user}", s.work)
	mux.HandleFunc("GET /book", func(w http.ResponseWriter, _ *http.Request) { backend.Reply(w, http.StatusOK, s.read(false)) })
	mux.HandleFunc("POST /book", func(w http.ResponseWriter, _ *http.Request) { backend.Reply(w, http.StatusOK, s.read(true)) })
	return mux
}

func (s *Service) work(w http.ResponseWriter, r *http.Request) {
	user := r.PathValue("user")
	last, _ := strconv.ParseInt(r.Header.Get(validUntil), 10, 64)
	takes, err := time.ParseDuration(r.URL.Query().Get("for"))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case !s.begin(user, last):
		http.Error(w, "the permit of this call has ended", http.StatusConflict)
		return
	}
	time.Sleep(takes) // whether or not the caller is still there
	s.count(user, -1)
}

// begin counts a call, unless it is late.
func (s *Service) begin(user string, last int64) bool {
	if last > 0 && hostclock.Now() > last {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.book.Late++
		return false
	}
	s.count(user, 1)
	return true
}

func (s *Service) count(user string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.book
	b.Now += n
	s.busy[user] += n
	if n > 0 {
		b.Calls++
	}
	b.Peak = max(b.Peak, b.Now)
	b.Peaks[user] = max(b.Peaks[user], s.busy[user])
	b.Levels = append(b.Levels, Level{hostclock.Now(), b.Now})
}

// read returns the book. With reset the counts begin anew: the peaks with the calls that run.
func (s *Service) read(reset bool) Book {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.book
	b.Levels = append([]Level(nil), b.Levels...)
	if !reset {
		b.Peaks = map[string]int{}
		for user, n := range s.book.Peaks {
			b.Peaks[user] = n
		}
		return b
	}
	b.Levels = nil
	s.book.Peak, s.book.Calls, s.book.Late, s.book.Peaks = b.Now, 0, 0, map[string]int{}
	for user, n := range s.busy {
		if n > 0 {
			s.book.Peaks[user] = n
		}
	}
	return b
}

// Client calls a service.
type Client struct{ URL string }

var transport = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Work calls the service for a user, and returns when the work is done. until is the deadline of the
// permit; a zero one is none. It returns an error if the call is refused or ctx ends; after the
// latter the work may continue.
func (c Client) Work(ctx context.Context, user string, takes time.Duration, until time.Time) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/work/%s?for=%v", c.URL, user, takes), nil)
	if err != nil {
		return err
	}
	if !until.IsZero() {
		req.Header.Set(validUntil, strconv.FormatInt(hostclock.At(until), 10))
	}
	resp, err := transport.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the downstream service answers %s", resp.Status)
	}
	return nil
}

// Book reads the counts, with the levels.
func (c Client) Book(ctx context.Context) (Book, error) { return c.read(ctx, http.MethodGet) }

// Reset reads the counts and resets them, in one step.
func (c Client) Reset(ctx context.Context) (Book, error) { return c.read(ctx, http.MethodPost) }

func (c Client) read(ctx context.Context, method string) (b Book, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+"/book", nil)
	if err != nil {
		return b, err
	}
	resp, err := transport.Do(req)
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	return b, json.NewDecoder(resp.Body).Decode(&b)
}
