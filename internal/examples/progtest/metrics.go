package progtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Scraper is the standard error of an example with the flag -metrics. It finds the URL in what the
// example writes, and scrapes it while the example runs.
type Scraper struct {
	Seen <-chan struct{} // closed after a page with all patterns

	to       io.Writer
	patterns []*regexp.Regexp
	client   *http.Client
	ctx      context.Context
	seen     chan struct{}
	scraping sync.WaitGroup

	text  []byte // without a URL so far
	found bool
	last  string // page; to be read after scraping
}

var metricsURL = regexp.MustCompile(`(?m)^metrics: (http://\S+)\n`)

// Scrape returns a Scraper that passes on what is written. At the end of the test, it fails t unless one
// page had a line for each of the patterns, from the beginning of the line.
func Scrape(t *testing.T, to io.Writer, patterns ...string) *Scraper {
	t.Helper()
	ctx, halt := context.WithCancel(context.WithoutCancel(t.Context()))
	seen := make(chan struct{})
	s := &Scraper{Seen: seen, to: to, ctx: ctx, seen: seen, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, p := range patterns {
		s.patterns = append(s.patterns, regexp.MustCompile("(?m)^"+p))
	}
	t.Cleanup(func() {
		halt()
		s.scraping.Wait()
		select {
		case <-seen:
		default:
			if !t.Skipped() {
				t.Errorf("no page had %q, the last one was:\n%s", patterns, s.last)
			}
		}
	})
	return s
}

// Write looks for the URL.
func (s *Scraper) Write(p []byte) (int, error) {
	if !s.found {
		s.text = append(s.text, p...)
		if m := metricsURL.FindSubmatch(s.text); m != nil {
			s.found = true
			s.scraping.Go(func() { s.scrape(string(m[1])) })
		}
	}
	return s.to.Write(p)
}

// scrape reads the page until it has all patterns or the test ends.
func (s *Scraper) scrape(url string) {
	for s.ctx.Err() == nil {
		if page, err := s.get(url); err == nil {
			if s.last = page; s.complete() {
				close(s.seen)
				return
			}
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(20 * tick):
		}
	}
}

func (s *Scraper) get(url string) (page string, err error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var all bytes.Buffer
	_, err = all.ReadFrom(resp.Body)
	return all.String(), err
}

func (s *Scraper) complete() bool {
	for _, p := range s.patterns {
		if !p.MatchString(s.last) {
			return false
		}
	}
	return true
}

// MetricsInUse runs the program with -metrics and an address that is in use. It fails the test unless
// the program exits with status 1 and names the flag. The program cannot start an etcd, so that it
// must look at the address first.
func (p *Program) MetricsInUse() {
	p.t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer lis.Close()
	p.Args = append(p.Args, "-metrics", lis.Addr().String())
	p.Env = append(p.Env, "TMPDIR="+filepath.Join(p.tmp, "no such folder"))
	p.Ends(1, "-metrics "+lis.Addr().String()+": ")
}
