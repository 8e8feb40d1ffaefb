package dialect

import (
	"cmp"

	"rollout/shared/fault"
)

// Failure returns a failure of the item. id is the result of RowID, or "" for a line
// that is not a request. The error row of this failure shows the line's own id as the
// line has it, a number as a number.
func (it *Item) Failure(id string, p Place, class fault.Class, message string) Failure {
	if it.HasID {
		id = it.ID
	}
	return Failure{ID: id, Place: p, Class: class, Message: message, rawID: it.rawID}
}

// AppendError appends the error row of a failed item in the dialect: one line of valid
// JSON that ends in LF. The row has the item index, the file, the line, the class and
// the message. The id is null if it is unknown.
func AppendError(dst []byte, d Name, f Failure) []byte {
	w := row{b: append(dst, '{')}
	switch d {
	case OpenAI:
		w.text("id", "batch_req_"+failureName(f))
		w.id("custom_id", f.rawID, f.ID)
		w.null("response")
		w.open("error", '{')
		w.text("code", openAICode(f.Class))
		w.text("message", f.Message)
		w.place(f.Place)
		w.end('}')
	case Bedrock:
		w.id("recordId", f.rawID, f.ID)
		w.open("error", '{')
		w.int("errorCode", status(f.Class))
		w.text("errorMessage", f.Message)
		w.text("class", string(f.Class))
		w.place(f.Place)
		w.end('}')
	case Vertex:
		w.id("key", f.rawID, f.ID)
		w.text("status", string(f.Class)+": "+f.Message)
		w.open("response", '{')
		w.end('}')
		w.text("class", string(f.Class))
		w.place(f.Place)
	default:
		w.id("id", f.rawID, f.ID)
		w.place(f.Place)
		w.text("class", string(f.Class))
		w.text("error", f.Message)
	}
	return w.close()
}

func (w *row) place(p Place) {
	w.uint("item", p.Item)
	w.text("file", p.File)
	w.uint("line", p.Line)
}

// openAICodes are the codes that OpenAI's Batch API has for classes. Error rows have the
// other classes as their codes.
var openAICodes = map[fault.Class]string{fault.Expired: "batch_expired", fault.CanceledItem: "batch_cancelled"}

func openAICode(c fault.Class) string { return cmp.Or(openAICodes[c], string(c)) }

// classOfCode returns the class that an error row of the openai dialect has. Rows of earlier
// versions have the class itself.
func classOfCode(code string) fault.Class {
	for class, c := range openAICodes {
		if c == code {
			return class
		}
	}
	return fault.Class(code)
}

// status returns the HTTP status that is closest to the class.
func status(c fault.Class) int64 {
	switch c {
	case fault.InvalidLine, fault.TooLong, fault.Refused:
		return 400
	case fault.DuplicateID, fault.InputChanged:
		return 409
	case fault.Timeout, fault.Expired:
		return 408
	case fault.Budget:
		return 429
	case fault.CanceledItem:
		return 499
	}
	return 500
}
