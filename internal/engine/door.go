package engine

// Door is how a public package shows a session: its Session type is a Door[T], for a T of its
// own. Such a type has the methods that its package declares and no others, and neither field
// can be reached from outside. An exported method that returned the Session of this package
// could be called by users; an alias for it would hide its methods from their documentation.
type Door[T any] struct {
	core *Session
	own  *T
}

// NewDoor returns a door to a session, with what its package adds to it.
func NewDoor[T any](core *Session, own *T) *Door[T] { return &Door[T]{core, own} }

// Of returns the session behind a door, or nil if there is none.
func Of[T any, D ~struct {
	core *Session
	own  *T
}](door *D) *Session {
	return Door[T](*door).core
}

// Own returns what the package that owns a door has added to its session.
func Own[T any, D ~struct {
	core *Session
	own  *T
}](door *D) *T {
	return Door[T](*door).own
}
