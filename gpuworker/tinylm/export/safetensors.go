package export

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"rollout/shared/fault"
)

// safeNames are the names of encodings in safetensors.
var safeNames = map[Encoding]string{F32: "F32", F16: "F16", BF16: "BF16"}

// Safetensors writes only the tensors to w, under Hugging Face's names: eight
// bytes with the length of the header, the header in JSON with the offsets of
// all tensors, and the tensors in order. HuggingFace returns this file and the
// others of a model's folder.
//
// Faults are those of GGUF, except that reward models are supported; Q8 is
// Invalid.
func Safetensors(w io.Writer, m Model, e Encoding) error {
	if err := m.check(); err != nil {
		return err
	}
	if safeNames[e] == "" {
		return fault.New(fault.Invalid, "safetensors does not support %s: export as f32, f16 or bf16, or as GGUF", e)
	}
	facts, err := json.Marshal(map[string]string{"format": "pt", "name": m.Name, "digest": m.Digest})
	if err != nil {
		return err
	}
	head := bytes.NewBufferString(`{"__metadata__":` + string(facts))
	offset := 0
	for _, t := range m.tensors() {
		as := encodingOf(t, e)
		name, err := json.Marshal(t.Name)
		if err != nil {
			return err
		}
		shape, err := json.Marshal(t.Shape)
		if err != nil {
			return err
		}
		end := offset + as.size(len(t.Data))
		fmt.Fprintf(head, `,%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, safeNames[as], shape, offset, end)
		offset = end
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 { // so that the tensors are aligned
		head.WriteByte(' ')
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if _, err := out.Write(binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))); err != nil {
		return err
	}
	if _, err := out.Write(head.Bytes()); err != nil {
		return err
	}
	for _, t := range m.tensors() {
		if _, err := writeTensor(out, t, encodingOf(t, e), inOrder); err != nil {
			return err
		}
	}
	return out.Flush()
}
