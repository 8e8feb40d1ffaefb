//go:build wasip1

// Command brevity is a grader for rollout that is compiled to WebAssembly: 1 for an answer of up
// to 50 words, and less for a longer one. examples/plugins/README.md has the protocol.
package main

import (
	"encoding/json"
	"strings"
	"unsafe"
)

// enough is how many words are not too many.
const enough = 50

type item struct {
	Answer string `json:"answer"`
}

type request struct {
	Method  string `json:"method"`
	Payload struct {
		Items []item `json:"items"`
	} `json:"payload"`
}

// answer returns the reply to a request.
func answer(text []byte) any {
	var r request
	if err := json.Unmarshal(text, &r); err != nil {
		return map[string]string{"error": err.Error()}
	}
	if r.Method != "grade" {
		return map[string]string{"error": "unknown method " + r.Method}
	}
	scores := make([]float64, len(r.Payload.Items))
	for i, it := range r.Payload.Items {
		scores[i] = min(1, enough/float64(max(1, len(strings.Fields(it.Answer)))))
	}
	return map[string]any{"payload": map[string]any{"scores": scores}}
}

// memory has what the worker writes to or reads from, so that it is not collected.
var memory = map[uint32][]byte{}

// keep returns the address of a text.
func keep(text []byte) uint32 {
	at := uint32(uintptr(unsafe.Pointer(unsafe.SliceData(text))))
	memory[at] = text
	return at
}

//go:wasmexport rollout_abi_version
func version() int32 { return 1 }

//go:wasmexport rollout_alloc
func alloc(size int32) uint32 { return keep(make([]byte, size)) }

//go:wasmexport rollout_call
func call(at uint32, size int32) uint64 {
	reply, err := json.Marshal(answer(memory[at][:size]))
	if err != nil {
		reply = []byte(`{"error":"the scores are no JSON"}`)
	}
	return uint64(keep(reply))<<32 | uint64(len(reply))
}

//go:wasmexport rollout_free
func free(at uint32, _ int32) { delete(memory, at) }

func main() {}
