package idempotency

import (
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Note sets a text by which an operator recognizes the request, such as an order number: it is in
// Record.Note, in UnknownError.Note and in the logs about a lost attempt. Control characters become
// spaces, and what exceeds 256 bytes is cut off. The note is stored in plain text, whatever the Codec:
// it must not contain what an operator may not see. An attempt without a note has that of the attempt
// before it. Attempt.SetNote changes it during the work.
func Note(text string) Option { return func(s *settings) { s.note = record.Note(text) } }

// Via names the entry that begins the attempt, records its outcome and replays it: it is in Record.Via. Do is
// "do", package idemhttp "http", for calls of RPC with their protocol as "http/grpc" and "http/connect+json", and package
// idemgrpc "grpc"; a call of Begin has none without this option.
// The latest attempt counts: after a takeover by another entry, the outcome is in the form of that one. Resolve takes no result that the entry cannot replay: for "http" it takes what idemhttp.Response.Encode
// has made, so a middleware of a program's own that replays such results can be "http" as well. For another name,
// of up to 64 bytes, and for none, Resolve takes any result. It has no effect on Do.
func Via(entry string) Option { return func(s *settings) { s.via = entry } }

// Returns names the type of the message that a call returns, in full as "shop.v1.Receipt": it is in Record.Returns. For
// the entry "grpc", Resolve takes no message of another type. Package idemgrpc sets it, and package idemhttp for calls
// of RPC, if the method is in protobuf's registry. A name of more than 255 bytes is left out. It has no effect on Do.
func Returns(message string) Option { return func(s *settings) { s.returns = message } }

// mostVia bounds the name of an entry, in bytes.
const mostVia = 64

// noted returns a note as a field of a log; an empty one is left out.
func noted(note string) zap.Field {
	if note == "" {
		return zap.Skip()
	}
	return zap.String("note", note)
}

// fieldsOf names the attempt in logs. The key's ID is a secret, and not among them.
func fieldsOf(a *Attempt, more ...zap.Field) []zap.Field {
	return append([]zap.Field{
		zap.String("scope", a.key.Scope), zap.String("op", a.key.Op), zap.String("ref", a.entry.Ref), zap.Int("attempt", a.begun.Number), noted(*a.own.note.Load()),
	}, more...)
}
