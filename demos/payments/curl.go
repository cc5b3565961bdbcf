package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// byCurl returns the phase of the flag -curl, in which another client than that of this program sends the requests. It
// is the test by which such a service is judged as a rule: of five identical requests at once, one succeeds, and four
// are refused.
func byCurl() phase {
	once := exactly(1)
	return phase{Name: "five at once, sent by curl", What: "one succeeds, and four are refused", run: (*demo).curled,
		promise: &promise{Good: once, Conflict: exactly(copies - 1), Charges: once, Codes: []string{inProgress}, Later: []int{http.StatusCreated}, Originals: once}}
}

// takes is how long a payment of that phase takes: longer than curl needs to send five requests on a busy machine.
const takes = 2 * time.Second

func (d *demo) curled(ctx context.Context) ([]result, error) {
	return d.each(ctx, byNoWait, d.orders, func(ctx context.Context, _ int, x request) (result, error) {
		if err := d.bank.plan(ctx, plan{Order: x.order, Takes: takes}); err != nil {
			return result{}, err
		}
		first, err := curl(ctx, d.curl, d.client.url, x, copies)
		if err != nil {
			return result{}, err
		}
		return d.settle(ctx, x, first, d.client.send(ctx, x))
	})
}

// curl sends the request several times at once, each on a connection of its own. It returns an error if the program
// cannot be started, or writes no answers.
func curl(ctx context.Context, program, url string, x request, times int) ([]answer, error) {
	dir, err := os.MkdirTemp("", "curl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"--parallel", "--parallel-immediate"}
	for n := range times {
		if n > 0 {
			args = append(args, "--next")
		}
		args = append(args, "--silent", "--max-time", strconv.Itoa(int(patience.Seconds())),
			"--header", "Content-Type: application/json", "--header", fmt.Sprintf("Idempotency-Key: %q", x.key),
			"--data-binary", string(bytes.TrimSpace(jsonLine(payment{x.amount}))), "--output", body(dir, n),
			"--write-out", fmt.Sprintf(`{"n": %d, "status": "%%{http_code}", "seconds": %%{time_total}, "header": %%{header_json}}\n`, n), url+x.path())
	}
	out, err := exec.CommandContext(ctx, program, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // a status other than 0 is that of a request without an answer
		return nil, err
	}
	return answers(dir, out, times)
}

// body returns the name of the file for the body of an answer.
func body(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)) }

// answers reads what curl has written.
func answers(dir string, out []byte, times int) (all []answer, err error) {
	for lines := json.NewDecoder(bufio.NewReader(bytes.NewReader(out))); len(all) < times; {
		var got struct {
			N       int         `json:"n"`
			Status  string      `json:"status"` // 000 if there was none
			Seconds float64     `json:"seconds"`
			Header  http.Header `json:"header"`
		}
		if err := lines.Decode(&got); err != nil {
			return nil, fmt.Errorf("curl has written %.500q, want %d answers: %w", out, times, err)
		}
		a := answer{Header: http.Header{}, Took: time.Duration(got.Seconds * float64(time.Second))}
		for name, values := range got.Header {
			a.Header[http.CanonicalHeaderKey(name)] = values
		}
		if a.Status, err = strconv.Atoi(got.Status); err != nil {
			return nil, fmt.Errorf("curl: status of an answer: %w", err)
		}
		if a.Status != 0 {
			if a.Body, err = os.ReadFile(body(dir, got.N)); err != nil {
				return nil, err
			}
		}
		all = append(all, a)
	}
	return all, nil
}
