package record

import (
	"encoding/json"
	"fmt"
	"strconv"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Schema is the version of documents. Decode refuses a newer version.
const Schema = 1

// SchemaParts is the version of a manifest with a List: an older reader would take the run for
// one of its first inputs.
const SchemaParts = 2

// Encode returns the JSON of a document or a small object. It panics on a value
// that JSON cannot hold, which none of this package's types has.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("record: encode %T: %v", v, err))
	}
	return b
}

// Decode reads a value that Encode wrote. what names the value in errors. A value
// of a newer schema is Invalid, because its fields may have another meaning; one
// that is not valid JSON or has other types is Corrupt.
func Decode(b []byte, v any, what string) error {
	newest := Schema
	if _, ok := v.(*Manifest); ok {
		newest = SchemaParts
	}
	if err := checkSchema(b, newest, what); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fault.WithKind(fault.Corrupt, err, "decode %s", what)
	}
	return nil
}

// checkSchema reads no further than the member schema, which Encode writes first.
func checkSchema(b []byte, newest int, what string) error {
	o := jsonl.ReadObject(b)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) != "schema" {
			continue
		}
		version, err := strconv.Atoi(string(m.Value))
		if err != nil {
			return fault.WithKind(fault.Corrupt, err, "decode %s", what)
		}
		if version > newest {
			return &fault.Error{Kind: fault.Invalid, Op: "decode " + what, Remedy: "upgrade this rollout",
				Err: fault.New(fault.Invalid, "it has schema %d, and this version reads up to %d", version, newest)}
		}
		return nil
	}
	return nil // json.Unmarshal reports a value that is not an object
}
