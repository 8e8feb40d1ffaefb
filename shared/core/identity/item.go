package identity

// ItemSchema is the first byte that every item id hashes. It must be increased when
// sampling params gain, lose or reorder a field.
const ItemSchema = 1

// Item returns Hasher.Item of a pooled Hasher.
func Item(model ContentID, request, params []byte, index uint64) ContentID {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	return h.Item(model, request, params, index)
}

// Item returns blake3(schema ‖ model ‖ len u64 LE + request ‖ len u64 LE +
// params ‖ index u64 LE). request is the line's own value without white space
// between tokens, and params is the canonical JSON of the sampling params.
func (h *Hasher) Item(model ContentID, request, params []byte, index uint64) ContentID {
	h.Reset()
	h.Write([]byte{ItemSchema})
	h.Write(model[:])
	h.uint64(uint64(len(request)))
	h.Write(request)
	h.uint64(uint64(len(params)))
	h.Write(params)
	h.uint64(index)
	return h.Sum()
}
