// Package supervise knows the methods of gRPC's own services by which a server is supervised. The
// interceptors of this module leave their calls alone by default: an orchestrator that gets no answer to a
// health check ends the process.
package supervise

import "strings"

// services are the beginnings of the full names of these services.
var services = [...]string{"/grpc.health.v1.", "/grpc.reflection."}

// Method reports whether a method, /package.Service/Method, is one of gRPC's health checks or of its reflection.
func Method(fullMethod string) bool {
	for _, s := range services {
		if strings.HasPrefix("/"+strings.TrimPrefix(fullMethod, "/"), s) {
			return true
		}
	}
	return false
}
