// Package wire is what the ranks of a pipeline send each other: envelopes from stage 0 to the
// mesh, results back, and the frames of both.
//
// A message is a header, then metadata and tensor specs, then the tensors in the order of
// their specs. Prepare does everything that can fail (validate, serialize, collect the
// tensors and check their types and sizes) before there is a first byte, and only what it
// returns can be written: a peer never waits for the rest of a message that its sender could
// not finish.
//
//	header   magic "RPP1" · kind · action · version · call_id · chunk_index · cache_epoch ·
//	         n_tensors · bytes of metadata · bytes of specs
//	body     metadata (JSON) · specs (JSON)
//	tensor   tag (cache_epoch, call_id, field) · bytes, little endian
//
// Read bounds every size before it allocates. A Contract says which tensors a kind of stage 1
// takes and returns.
package wire
