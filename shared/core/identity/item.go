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
	h.begin(ItemSchema, model, request, params)
	h.uint64(index)
	return h.Sum()
}

// ItemSchema2 is the first byte of the ids of items whose requests depend on more than
// the request and the sampling params.
const ItemSchema2 = 2

// Item2 returns blake3(ItemSchema2 ‖ model ‖ len u64 LE + request ‖ len u64 LE + params ‖
// len u64 LE + more ‖ index u64 LE), of a pooled Hasher. More is the canonical JSON of
// what else the request depends on.
func Item2(model ContentID, request, params, more []byte, index uint64) ContentID {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	h.begin(ItemSchema2, model, request, params)
	h.uint64(uint64(len(more)))
	h.Write(more)
	h.uint64(index)
	return h.Sum()
}

// begin hashes what item ids of all versions begin with.
func (h *Hasher) begin(schema byte, model ContentID, request, params []byte) {
	h.Reset()
	h.Write([]byte{schema})
	h.Write(model[:])
	h.uint64(uint64(len(request)))
	h.Write(request)
	h.uint64(uint64(len(params)))
	h.Write(params)
}
