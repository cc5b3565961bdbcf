// Package door leads from a public type of package concurrency to what the limiting middlewares need of
// it, and users do not.
package door

// Door is the form of such a type: `type Semaphore door.Door[semaphore]` has the methods that its package
// declares and no others, and users cannot reach its field. What is behind it has exported methods for the
// middlewares, which an alias or an embedded type would show to users as well.
type Door[T any] struct{ room T }

// New returns a door to a room.
func New[T any](room T) *Door[T] { return &Door[T]{room} }

// In returns what is behind a door, or the zero value if the door is nil.
func In[T any, D ~struct{ room T }](door *D) (room T) {
	if door != nil {
		room = Door[T](*door).room
	}
	return room
}
