#!/usr/bin/env bash
# Guess: Referrer-Policy: no-referrer takes the Referer header away and leaves Origin alone, so a server that refuses a POST from
#   another Origin than its own may set it: a form of its own page is same-origin.
# Really: with no-referrer the browser sends "Origin: null" with the page's own form, so a check that compares Origin with the
#   host refuses one's own page. Sec-Fetch-Site still says same-origin, and with same-origin as the policy, Origin is the page's.
#   A form that is sent by GET has no Origin.
# Versions: Chromium 156.0.8078.108 (Debian 12, 156.0.8078.108-1~deb12u1, which apt-get installs), headless; Go 1.26
# Source: Fetch standard, "append a request Origin header": no-referrer sets it to null for other methods than GET and HEAD.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOWORK=off
cat > go.mod <<'M'
module probe
go 1.26
M
cat > main.go <<'G'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"time"
)

// headers returns the Origin, without the port, and the Sec-Fetch-Site of a page's own form.
func headers(policy, method string) string {
	got := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Referrer-Policy", policy)
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="%s" action="/act"><input name="a" value="b"></form><script>document.forms[0].submit()</script>`, method)
	})
	mux.HandleFunc("/act", func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "http://"+r.Host {
			origin = "its own"
		}
		got <- fmt.Sprintf("Origin %q, Sec-Fetch-Site %q", origin, r.Header.Get("Sec-Fetch-Site"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	profile, err := os.MkdirTemp("", "profile")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(profile)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	browser := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile, "--dump-dom", "--virtual-time-budget=10000", server.URL+"/page")
	out, err := browser.CombinedOutput()
	select {
	case h := <-got:
		return h
	default:
		panic(fmt.Sprintf("the form was not sent: %v: %s", err, out))
	}
}

func main() {
	changed := false
	for _, c := range []struct{ policy, method, want string }{
		{"no-referrer", "post", `Origin "null", Sec-Fetch-Site "same-origin"`},
		{"same-origin", "post", `Origin "its own", Sec-Fetch-Site "same-origin"`},
		{"no-referrer", "get", `Origin "", Sec-Fetch-Site "same-origin"`},
	} {
		got := headers(c.policy, c.method)
		fmt.Printf("Referrer-Policy: %s, a form by %s: %s\n", c.policy, c.method, got)
		changed = changed || got != c.want
	}
	if changed {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
chromium --version
go run .
