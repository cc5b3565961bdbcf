#!/usr/bin/env bash
# Guess: chromedp.WaitReady("h1") waits for an element h1, as document.querySelector finds one.
# Really: without an option the selector is a search of DevTools (BySearch), which is also a search for plain text: on a page
#   without an h1 a link to "#h1" ends the wait, and a test goes on before its page is there. With chromedp.ByQuery it waits.
# Versions: chromedp v0.14.2, Chromium 156.0.8078.108 (Debian 12, 156.0.8078.108-1~deb12u1, which apt-get installs), headless; Go 1.26
# Source: chromedp query.go, BySearch is the default of Query and calls DOM.performSearch; DevTools protocol, DOM.performSearch:
#   "Plain text or query selector or XPath search query".
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'M'
module probe
go 1.26
M
cat > main.go <<'G'
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/chromedp/chromedp"
)

const page = `<!DOCTYPE html><title>x</title><p><a href="#h1">to the top</a></p>`

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	}))
	defer server.Close()
	alloc, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	defer end()
	ctx, cancel := chromedp.NewContext(alloc)
	defer cancel()
	var elements int
	if err := chromedp.Run(ctx, chromedp.Navigate(server.URL), chromedp.Evaluate(`document.querySelectorAll("h1").length`, &elements)); err != nil {
		panic(err)
	}
	waits := func(opts ...chromedp.QueryOption) string {
		soon, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		switch err := chromedp.Run(soon, chromedp.WaitReady("h1", opts...)); {
		case err == nil:
			return "found"
		case errors.Is(err, context.DeadlineExceeded):
			return "waits"
		default:
			return err.Error()
		}
	}
	search, query := waits(), waits(chromedp.ByQuery)
	fmt.Printf("elements h1: %d; WaitReady(\"h1\"): %s; with ByQuery: %s\n", elements, search, query)
	if elements != 0 || search != "found" || query != "waits" {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
go get github.com/chromedp/chromedp@v0.14.2 >/dev/null 2>&1
chromium --version
go run .
