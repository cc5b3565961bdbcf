#!/usr/bin/env bash
# Guess: chi's middleware.Timeout answers 504 when its time is over, as http.TimeoutHandler answers 503, or it leaves the response to
#   the handler.
# Really: it waits for the handler however long that takes, and then writes a 504 on top of what the handler has done. A handler that
#   returns without a write of its own, which net/http answers with 200, has done its work and is a 504: for the client and for each
#   middleware around Timeout. One that has written keeps its status, 204 as well, and the 504 is a "superfluous" line in the log. A
#   client that repeats a 504 repeats work that is done.
# Versions: github.com/go-chi/chi/v5 v5.2.3
# Source: chi middleware/timeout.go: the deferred function around next.ServeHTTP.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go <<'G'
package main

import (
	"bytes"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"
)

const limit = 20 * time.Millisecond

func main() {
	chi := middleware.Timeout(limit)
	std := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, limit, "") }
	var says []string
	for _, c := range []struct {
		name string
		ends func(http.ResponseWriter)
	}{
		{"returns", func(http.ResponseWriter) {}},
		{"writes 204", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }},
		{"writes a body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("done")) }},
	} {
		says = append(says, c.name+": chi "+get(chi, c.ends)+"; net/http "+get(std, c.ends))
	}
	got := strings.Join(says, "\n")
	fmt.Println(got)
	if got != os.Args[1] {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

// get returns the status of a handler that its context's end does not stop, and whether the answer came before its end.
func get(timeout func(http.Handler) http.Handler, ends func(http.ResponseWriter)) string {
	answered, ended := make(chan struct{}), make(chan struct{})
	before := false
	var logged bytes.Buffer
	s := httptest.NewUnstartedServer(timeout(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		<-r.Context().Done()
		select {
		case <-answered:
			before = true
		case <-time.After(time.Second):
		}
		ends(w)
	})))
	s.Config.ErrorLog = log.New(&logged, "", 0)
	s.Start()
	resp, err := http.Get(s.URL)
	close(answered)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	<-ended
	s.Close()
	text := fmt.Sprint(resp.StatusCode, " after the handler")
	if before {
		text = fmt.Sprint(resp.StatusCode, " before the handler's end")
	}
	if strings.Contains(logged.String(), "superfluous") {
		text += ", superfluous"
	}
	return text
}
G
go mod init probe >/dev/null 2>&1
go get github.com/go-chi/chi/v5@v5.2.3 >/dev/null 2>&1
go run . "returns: chi 504 after the handler; net/http 503 before the handler's end
writes 204: chi 204 after the handler, superfluous; net/http 503 before the handler's end
writes a body: chi 200 after the handler, superfluous; net/http 503 before the handler's end" 2>/dev/null
