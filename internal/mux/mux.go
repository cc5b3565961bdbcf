// Package mux looks through an http.ServeMux, for middlewares that act by what they call directly.
package mux

import "net/http"

// Called returns the handler that next calls for the request, if next is an http.ServeMux, which does nothing but call it, and
// otherwise next.
func Called(next http.Handler, r *http.Request) http.Handler {
	for range muxes {
		mux, is := next.(*http.ServeMux)
		if !is {
			break
		}
		next, _ = mux.Handler(r)
	}
	return next
}

// muxes is how many are looked through: one may be behind itself.
const muxes = 8
