// Package supervise knows the methods of gRPC's own services by which a server is supervised. The
// middlewares of this module leave their calls alone by default: an orchestrator that gets no answer to a
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

// methods are all methods of these services.
var methods = map[string]bool{
	"/grpc.health.v1.Health/Check": true, "/grpc.health.v1.Health/Watch": true, "/grpc.health.v1.Health/List": true,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
}

// Request reports whether a request of HTTP is a call of such a method, by gRPC, gRPC-Web or Connect. header returns the
// first value of a field of it. The path is the client's, so it has to be that of a method, and not one that a server behind
// may read as another.
func Request(path string, header func(name string) string) bool {
	media := strings.ToLower(strings.TrimSpace(header("Content-Type")))
	return methods[path] && (strings.HasPrefix(media, "application/grpc") || strings.HasPrefix(media, "application/connect+") ||
		strings.HasPrefix(media, "application/proto") || header("Connect-Protocol-Version") != "" || header("Connect-Timeout-Ms") != "")
}
