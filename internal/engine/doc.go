// Package engine is a session: a lease that is kept alive, the requests that are written on
// it, what holds by them, and the notices that other sessions leave for them. It knows queues
// by their keys only, and no rule of admission.
//
// Package concurrency shows a session to users through a Door. The packages beside it reach
// what they need of the session by Of.
package engine
