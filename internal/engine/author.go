package engine

import "context"

type authorKey struct{}

// As derives a ctx with which calls store an author in place of the session's owner: in limits, notices, pauses, requested
// and unlocked runs, and outcomes. It is for a process that acts for its users, as the console does.
func As(ctx context.Context, author string) context.Context {
	return context.WithValue(ctx, authorKey{}, author)
}

// Author returns the author of a change that is made with ctx: that of As, or the session's owner.
func Author(ctx context.Context, s *Session) string {
	if author, ok := ctx.Value(authorKey{}).(string); ok {
		return author
	}
	return s.Owner()
}
