package idemhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// A446, A447, A448: what follows a 201 with a part of its body, by all that can come together: a status of 5xx on top, the
// handler's word, the end of the client that it has asked for, a flush, and a Content-Length.
func TestWhatFollowsAResponse(t *testing.T) {
	t.Parallel()
	for n := range 4 << 4 {
		second, left, flushed, whole := n&1 != 0, n&2 != 0, n&4 != 0, n&8 != 0
		word := []idempotency.Action{idempotency.DefaultAction, idempotency.Remember, idempotency.Forget, idempotency.Abandon}[n>>4]
		name := fmt.Sprintf("second %v, left %v, flushed %v, whole %v, word %v", second, left, flushed, whole, word)
		v := &visit{}
		c := &config{Options: Options{OnStatus: func(int) idempotency.Action { return idempotency.DefaultAction }}}
		rec := record(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), 1<<10, nil)
		Decide(context.WithValue(t.Context(), visitKey{}, v), word)
		if whole {
			rec.Header().Set("Content-Length", "4")
		}
		rec.WriteHeader(http.StatusCreated)
		_, _ = rec.Write([]byte("part"))
		if flushed {
			require.NoError(t, rec.flush())
		}
		if second {
			rec.WriteHeader(http.StatusInternalServerError)
			_, _ = rec.Write([]byte("boom"))
		}
		response := rec.end(c)
		rec.stopped = rec.stops(contexts{client: left})
		res := v.decide(c, rec, response)

		sure := whole || !second && !left // that the handler has written all of it
		fails := second && !(whole && word == idempotency.Remember)
		replaced := fails && !flushed && word == idempotency.Remember // by the 500
		require.Equal(t, fails && !replaced, rec.fell(), name)
		require.Equal(t, word == idempotency.Remember || word == idempotency.DefaultAction && sure && !fails, res.Action == idempotency.Remember, name)
		is := []any{http.StatusCreated, "part", second && !whole}
		if replaced {
			is = []any{http.StatusInternalServerError, "boom", false}
		}
		require.Equal(t, is, []any{response.Status, string(response.Body), response.Omitted}, name)
		sent := !fails && !res.Withhold // as a whole success
		require.Equal(t, res.Action == idempotency.Remember && !fails || res.Action == idempotency.Forget && res.Own && !fails, sent, name)
		require.Equal(t, word == idempotency.Forget && sure && !fails, res.Action == idempotency.Forget, name)
		if sent {
			require.False(t, res.Failed, "what was attached is written: "+name)
		}
	}
}

// A586: the 504 of a timeout that writes nothing else is ignored on top of a success that is whole by its length, without a body
// or as JSON. Any other status of 5xx leaves the attempt as lost, such as a recoverer's after that 504.
// A645: it was ignored on top of any whole response: that of a commit that had failed after a 204, and an error that was what
// the timeout had made of the work.
func TestStatusOnTopOfAResponse(t *testing.T) {
	t.Parallel()
	const json, paid = "application/json; charset=utf-8", ` {"paid":1}` + "\n"
	for name, c := range map[string]struct {
		kind, body string
		length     string
		status     int
		then       []int
		text       string
		want       middleware.End
	}{
		"nothing":               {"text/plain", "paid", "", 201, nil, "", middleware.Success},
		"text":                  {"text/plain", "paid", "", 201, []int{504}, "", middleware.Broken},
		"a length":              {"text/plain", "paid", "4", 201, []int{500}, "boom", middleware.Broken},
		"a length, late":        {"text/plain", "paid", "4", 201, []int{504}, "", middleware.Success},
		"a length, 504 and 500": {"text/plain", "paid", "4", 201, []int{504, 500}, "boom", middleware.Broken},
		"a part of a length":    {"text/plain", "paid", "5", 201, []int{504}, "", middleware.Broken},
		"no content":            {"", "", "", 204, []int{504}, "", middleware.Success},
		"no content, 500":       {"", "", "", 204, []int{500}, "commit failed", middleware.Broken},
		"an error":              {json, paid, "", 422, []int{504}, "", middleware.Broken}, // as of "context deadline exceeded"
		"an error of a length":  {"text/plain", "paid", "4", 400, []int{504}, "", middleware.Broken},
		"JSON":                  {json, paid, "", 201, []int{504}, "", middleware.Success},
		"an array":              {"application/vnd.shop+json", "[1]", "", 201, []int{504, 504}, "", middleware.Success},
		"JSON, compressed":      {json, zipped(t, paid), "", 201, []int{504}, "", middleware.Success},
		"half JSON":             {json, `{"paid":`, "", 201, []int{504}, "", middleware.Broken},
		"JSON, and more":        {json, paid + `{"`, "", 201, []int{504}, "", middleware.Broken},
		"a number":              {json, "12", "", 201, []int{504}, "", middleware.Broken},
		"JSON as text":          {"text/plain", paid, "", 201, []int{504}, "", middleware.Broken},
		"500":                   {json, paid, "", 201, []int{500}, "", middleware.Broken},
		"504 with a text":       {json, paid, "", 201, []int{504}, "gateway", middleware.Broken},
		"a recoverer after 504": {json, paid, "", 201, []int{504, 500}, "", middleware.Broken},
		"504 after a recoverer": {json, paid, "", 201, []int{500, 504}, "", middleware.Broken},
		"JSON not buffered":     {json, "[" + strings.Repeat(" ", 2<<10) + "]", "", 201, []int{504}, "", middleware.Broken},
	} {
		rec := record(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), 1<<10, nil)
		rec.Header().Set("Content-Type", c.kind)
		if c.length != "" {
			rec.Header().Set("Content-Length", c.length)
		}
		if strings.HasPrefix(c.body, "\x1f\x8b") {
			rec.Header().Set("Content-Encoding", "gzip")
		}
		rec.WriteHeader(c.status)
		_, _ = rec.Write([]byte(c.body))
		for _, status := range c.then {
			rec.WriteHeader(status)
		}
		_, _ = rec.Write([]byte(c.text))
		res := rec.end(&config{})
		end := rec.judge()
		require.Equal(t, c.want, end.kind, "%s: %s", name, end.text)
		require.Equal(t, c.status, res.Status, name)
		require.Equal(t, c.want == middleware.Broken && !rec.entire(), res.Omitted, name)
		if c.want != middleware.Broken {
			require.Equal(t, c.body, string(res.Body), name)
		}
	}
}
