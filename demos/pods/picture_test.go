package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
)

func TestPicture(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	p := picture{
		limit: 10, from: 100 * second, to: 110 * second,
		levels: []downstream.Level{{At: 101 * second, N: 1}, {At: 102 * second, N: 40}, {At: 109 * second}},
		rows: []*row{
			{phase: "steady load", Bound: 10, Held: true, from: 100 * second, answers: []waits.Answer{{At: 101 * second, Status: http.StatusOK}, {At: 99 * second}, {At: 111 * second}}},
			{phase: "etcd stopped, Open", Held: true, from: 105 * second, answers: []waits.Answer{{At: 106 * second, Status: http.StatusOK, Without: true}, {At: 106 * second, Status: http.StatusServiceUnavailable}}},
		},
		marks: []mark{{At: 105 * second, What: "etcd is stopped"}},
	}
	drawn := string(p.svg())
	for dec := xml.NewDecoder(strings.NewReader(drawn)); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, drawn)
		}
	}
	for _, want := range []string{"Three instances, limit 10", "never more than the bound", "steady load", "etcd stopped, Open", "etcd is stopped", ">10 s<", ">40<"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("%q is missing in\n%s", want, drawn)
		}
	}
	if drawn != string(p.svg()) {
		t.Error("the same run is drawn in two ways")
	}
	p.rows[0].Held = false
	if drawn := string(p.svg()); !strings.Contains(drawn, "A PROMISE WAS BROKEN") || strings.Contains(drawn, "never more") {
		t.Errorf("it does not say that a promise was broken:\n%s", drawn)
	}
}

// The README has the rows that the program prints, and its last line.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{OK: true, Instances: instances, Limit: 10, Wait: wait.Seconds()}
	var printed bytes.Buffer
	o.Write(&printed)
	for _, line := range strings.Split(printed.String(), "\n") {
		if !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "elapsed") && !strings.Contains(string(page), line+"\n") {
			t.Errorf("the README has no line %q", line)
		}
	}
	for _, o := range outages {
		for _, row := range []string{"etcd is stopped, " + o.name, "etcd is back, " + o.name} {
			if !strings.Contains(string(page), "\n"+row+" ") {
				t.Errorf("the README has no row %q", row)
			}
		}
	}
}
