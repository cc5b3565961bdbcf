package procs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// scraper leaves no connection open.
var scraper = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Metrics returns those metrics of a member that have no labels, by name.
func (c *Cluster) Metrics(ctx context.Context, member int) (map[string]float64, error) {
	all := map[string]float64{}
	err := c.get(ctx, member, "/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
				all[name] = v
			}
		}
		return lines.Err()
	})
	return all, err
}

// Heap has a member collect its garbage, also what its pools hold, which survives two collections, and returns the bytes
// that are left, with their profile. What metrics say has the garbage of the requests since. The member needs
// --enable-pprof.
func (c *Cluster) Heap(ctx context.Context, member int) (left float64, profile []byte, err error) {
	for range 3 {
		err = c.get(ctx, member, "/debug/pprof/heap?gc=1&debug=1", func(body io.Reader) (err error) {
			profile, err = io.ReadAll(body)
			return err
		})
		if err != nil {
			return 0, nil, err
		}
	}
	_, after, found := strings.Cut(string(profile), "\n# HeapAlloc = ")
	figure, _, _ := strings.Cut(after, "\n")
	if left, err = strconv.ParseFloat(figure, 64); err != nil || !found {
		return 0, nil, fmt.Errorf("the heap profile of member %d has no HeapAlloc", member)
	}
	return left, profile, nil
}

func (c *Cluster) get(ctx context.Context, member int, path string, read func(io.Reader) error) error {
	url := "http://" + c.members[member].client + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := scraper.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return read(resp.Body)
}
