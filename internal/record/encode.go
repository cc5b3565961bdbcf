package record

import (
	"encoding/base64"
	"strconv"
)

// Encode writes a record, as json.Marshal writes its line.
func (r Attempt) Encode() string { return string(r.Bytes()) }

// Bytes is Encode. A request encodes two of them, so reflection is spared, and a string.
func (r *Attempt) Bytes() []byte {
	b := make([]byte, 0, 384+len(r.Owner)+len(r.Scope)+len(r.Op)+len(r.Note)+len(r.Error)+len(r.Body))
	b = r.appendOwn(b)
	b = appendText(b, "owner", r.Owner)
	b = appendText(b, "session", r.Session)
	b = appendText(b, "scope", r.Scope)
	b = appendText(b, "op", r.Op)
	b = appendText(b, "via", r.Via)
	b = appendText(b, "returns", r.Returns)
	b = appendText(b, "note", r.Note)
	if r.Print == nil {
		b = append(b, `,"fingerprint":null`...)
	} else {
		b = appendBytes(b, "fingerprint", r.Print)
	}
	if len(r.Also) > 0 {
		b = appendBytes(b, "also_fingerprint", r.Also)
	}
	b = appendTrue(b, "refuse", r.Refuse)
	b = strconv.AppendInt(append(b, `,"start":`...), r.StartMS, 10)
	b = appendNumber(b, "end", r.EndMS)
	b = appendNumber(b, "token", r.Token)
	b = appendText(b, "codec", r.Codec)
	b = appendNumber(b, "size", int64(r.Size))
	b = appendNumber(b, "parts", int64(r.Parts))
	if len(r.Sum) > 0 {
		b = appendBytes(b, "sum", r.Sum)
	}
	b = appendTrue(b, "omitted", r.Omitted)
	b = appendText(b, "error", r.Error)
	b = appendText(b, "by", r.By)
	if len(r.Was) > 0 {
		b = append(append(b, `,"was":`...), encode(r.Was)...)
	}
	return append(append(b, '}', '\n'), r.Body...)
}

// Prefix returns what the record of the attempt begins with as long as it works, whatever else of it changes. No record
// of another attempt, and none of another state, begins with it.
func (r Attempt) Prefix() string {
	r.State = AttemptWorking
	return string(append(r.appendOwn(nil), ',')) // the fingerprint follows, at least
}

// appendOwn appends what is an attempt's own.
func (r Attempt) appendOwn(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"v":`...), version, 10)
	b = appendString(append(b, `,"state":`...), r.State)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(r.Number), 10)
	b = appendString(append(b, `,"nonce":`...), r.Nonce)
	return strconv.AppendInt(append(b, `,"lease":`...), r.Lease, 10)
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendString(appendName(b, name), text)
}

func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendTrue(b []byte, name string, is bool) []byte {
	if !is {
		return b
	}
	return append(appendName(b, name), "true"...)
}

func appendBytes(b []byte, name string, of []byte) []byte {
	b = append(appendName(b, name), '"')
	return append(base64.StdEncoding.AppendEncode(b, of), '"')
}
