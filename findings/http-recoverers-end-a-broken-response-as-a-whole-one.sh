#!/usr/bin/env bash
# Guess: with a recoverer in front, a handler that panics in the middle of its response fails as one that panics before it: the
#   client gets a 500, or at least a response that is visibly broken off.
# Really: without a recoverer net/http aborts the connection, and the client's read ends with an unexpected EOF. The recoverers of
#   chi, echo and gin catch the panic and write a status that comes too late, so net/http ends the chunked body properly: the client,
#   each proxy and each cache get a 200 with half of the body, and no error. An error that an echo handler returns after its first
#   write ends so as well. With a Content-Length that the body does not reach, net/http itself breaks it off. What has to be seen
#   as broken needs panic(http.ErrAbortHandler), which chi and echo pass on; gin ends that as a whole response, too.
# Versions: github.com/go-chi/chi/v5 v5.2.3, github.com/labstack/echo/v4 v4.13.4, github.com/gin-gonic/gin v1.11.0
# Source: chi middleware/recoverer.go; echo middleware/recover.go, echo.go DefaultHTTPErrorHandler ("if c.Response().Committed");
#   gin recovery.go.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go <<'G'
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
)

func half(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "half ")
	_ = http.NewResponseController(w).Flush()
}

func main() {
	log.SetOutput(io.Discard)
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter, gin.DefaultWriter = io.Discard, io.Discard
	var says []string
	for _, panics := range []any{errors.New("of a handler"), http.ErrAbortHandler} {
		c := chi.NewRouter()
		c.Use(chimiddleware.Recoverer)
		c.Get("/", func(w http.ResponseWriter, _ *http.Request) { half(w); panic(panics) })
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		e.Use(echomiddleware.Recover())
		e.GET("/", func(c echo.Context) error { half(c.Response()); panic(panics) })
		e.GET("/error", func(c echo.Context) error { half(c.Response()); return errors.New("of a handler") })
		g := gin.New()
		g.Use(gin.Recovery())
		g.GET("/", func(c *gin.Context) { half(c.Writer); panic(panics) })
		says = append(says, fmt.Sprint("panic: ", panics),
			" net/http "+get(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { half(w); panic(panics) }), "/"),
			" chi "+get(c, "/"), " echo "+get(e, "/"), " gin "+get(g, "/"))
		if len(says) == 5 {
			says = append(says, " echo, an error "+get(e, "/error"))
		}
	}
	got := strings.Join(says, "\n")
	fmt.Println(got)
	if got != os.Args[1] {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

// get returns what a client sees of a response.
func get(h http.Handler, path string) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	defer s.Close()
	resp, err := http.Get(s.URL + path)
	if err != nil {
		return "no response"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %q, %v", resp.StatusCode, body, err)
}
G
go mod init probe >/dev/null 2>&1
go get github.com/go-chi/chi/v5@v5.2.3 github.com/labstack/echo/v4@v4.13.4 github.com/gin-gonic/gin@v1.11.0 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . 'panic: of a handler
 net/http 200 "half ", unexpected EOF
 chi 200 "half ", <nil>
 echo 200 "half ", <nil>
 gin 200 "half ", <nil>
 echo, an error 200 "half ", <nil>
panic: net/http: abort Handler
 net/http 200 "half ", unexpected EOF
 chi 200 "half ", unexpected EOF
 echo 200 "half ", unexpected EOF
 gin 200 "half ", <nil>' 2>/dev/null
