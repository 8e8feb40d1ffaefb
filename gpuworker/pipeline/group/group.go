// Package group gives the ranks of a pipeline their two groups.
//
//	World   ranks 0..N    rank 0 with each other rank: envelopes, results, the start handshake
//	Mesh    ranks 1..N    each with each other: broadcasts of the leader, all-gathers, sums
//
// The handles have different types, and only ranks of the mesh have a Mesh: stage 0 has no
// means to enter a collective of the mesh, and stage 1 gets a Mesh alone. The collectives of
// the World end with the start handshake; a later one fails at once instead of waiting for
// ranks that never come.
//
// The start handshake compares the settings of all ranks by name (Parity), before any of them
// waits for another. Sums add in the order of the ranks, so that all have the same bits.
package group

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Names of the groups in logs and faults.
const (
	WorldName = "world"
	MeshName  = "mesh"
)

// Leader is the rank that leads the mesh.
const Leader = 1

// TerminatedError says that a peer has ended the group in an orderly way, or with a failure.
type TerminatedError struct {
	Action pipeline.Action // Shutdown or Error
	Reason string
}

func (e *TerminatedError) Error() string { return fmt.Sprintf("%v: %s", e.Action, e.Reason) }

// receive reads the next frame of a connection. It returns the block of a collective, or an
// envelope with its payload. A terminal envelope is returned as a TerminatedError.
func receive(c *link.Conn, deadline time.Time, contract wire.Contract) (wire.Header, *wire.Envelope, error) {
	h, err := c.Header(deadline)
	if err != nil {
		return h, nil, err
	}
	if h.Kind != wire.KindEnvelope {
		return h, nil, nil
	}
	body, err := c.Body()
	if err != nil {
		return h, nil, err
	}
	e, err := wire.ReadEnvelope(body, h, contract)
	if err == nil && h.Action.Terminal() {
		return h, nil, &TerminatedError{h.Action, e.Reason}
	}
	return h, e, err
}

// World is the group of all ranks.
type World struct {
	Rank, Ranks int

	peers   []*link.Conn // of rank 0 by rank, else rank 0 alone
	started bool
	timeout time.Duration
}

// AllGather returns the blocks of all ranks. It is for the start alone: later it fails with
// Internal before it sends anything, as the mesh works in its own group.
func (w *World) AllGather(own []byte) ([][]byte, error) {
	if w.started {
		return nil, fault.New(fault.Internal, "rank %d: group_used=%s, expected_group=%s: only the start may gather "+
			"from all ranks", w.Rank, WorldName, MeshName)
	}
	if w.Rank > 0 {
		if err := w.peers[0].SendBlock(wire.KindWorld, 0, own); err != nil {
			return nil, err
		}
		b, err := readBlock(w.peers[0], wire.KindWorld, 0, w.timeout, nil)
		if err != nil {
			return nil, err
		}
		var all [][]byte
		if err := json.Unmarshal(b, &all); err != nil || len(all) != w.Ranks {
			return nil, fault.New(fault.Corrupt, "rank 0 sent %d settings of %d ranks", len(all), w.Ranks)
		}
		return all, nil
	}
	all := [][]byte{own}
	for rank := 1; rank < w.Ranks; rank++ {
		b, err := readBlock(w.peers[rank], wire.KindWorld, 0, w.timeout, nil)
		if err != nil {
			return nil, fault.Wrap(err, "rank %d", rank)
		}
		all = append(all, b)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, fault.WithKind(fault.Internal, err, "gather")
	}
	for rank := 1; rank < w.Ranks; rank++ {
		if err := w.peers[rank].SendBlock(wire.KindWorld, 0, b); err != nil {
			return nil, fault.Wrap(err, "rank %d", rank)
		}
	}
	return all, nil
}

// Conn returns the connection between stage 0 and the leader: of rank 0 and of the leader.
func (w *World) Conn() *link.Conn {
	if w.Rank == 0 {
		return w.peers[Leader]
	}
	return w.peers[0]
}

// Close ends the connections.
func (w *World) Close() { closeAll(w.peers) }

func closeAll(cs []*link.Conn) {
	for _, c := range cs {
		if c != nil {
			_ = c.Close()
		}
	}
}

// readBlock reads a block of the collective with that number.
func readBlock(c *link.Conn, kind wire.Kind, number int64, timeout time.Duration, buf []byte) ([]byte, error) {
	h, e, err := receive(c, time.Now().Add(timeout), wire.Contract{})
	if err != nil {
		return nil, err
	}
	if e != nil || h.Kind != kind || h.Chunk != number {
		return nil, fault.New(fault.Corrupt, "a frame of the kind %d, number %d: the kind %d, number %d is expected: "+
			"the ranks do not run the same collectives", h.Kind, h.Chunk, kind, number)
	}
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	return wire.ReadBlock(body, h, buf)
}

// Mesh is the group of the ranks that generate. One goroutine may use it.
type Mesh struct {
	rank   int          // in the mesh, from 0
	peers  []*link.Conn // nil for itself
	number int64        // of the next collective
	blocks [][]byte     // of the last gather
	floats [][]float32
	own    []byte
	ids    pipeline.IDs // of the chunk in work

	timeout  time.Duration
	contract wire.Contract
}

// Rank returns the rank in the mesh; 0 is the leader's.
func (m *Mesh) Rank() int { return m.rank }

// Size returns the number of ranks.
func (m *Mesh) Size() int { return len(m.peers) }

// Begin says which chunk the next collectives are for.
func (m *Mesh) Begin(ids pipeline.IDs) { m.ids = ids }

// inlineBlock is the size up to which a block fits into the buffers of a connection, so that
// all ranks can send before any of them reads.
const inlineBlock = 32 << 10

// AllGather returns the blocks of all ranks, in their order. They are valid until the next
// call. A rank that does not come in time, or is in another collective, is a fault.
func (m *Mesh) AllGather(own []byte) ([][]byte, error) {
	number := m.number
	m.number++
	if m.blocks == nil {
		m.blocks = make([][]byte, len(m.peers))
	}
	sent := make(chan error, 1)
	send := func() {
		for _, p := range m.peers {
			if p != nil {
				if err := p.SendBlock(wire.KindMesh, number, own); err != nil {
					sent <- err
					return
				}
			}
		}
		sent <- nil
	}
	if len(own) <= inlineBlock {
		send()
	} else {
		go send()
	}
	var err error
	for rank, p := range m.peers {
		if p == nil {
			m.blocks[rank] = append(m.blocks[rank][:0], own...)
			continue
		}
		if m.blocks[rank], err = readBlock(p, wire.KindMesh, number, m.timeout, m.blocks[rank]); err != nil {
			return nil, m.fail(err, rank)
		}
	}
	if err := <-sent; err != nil {
		return nil, m.fail(err, -1)
	}
	return m.blocks, nil
}

func (m *Mesh) fail(err error, peer int) error {
	return fault.Wrap(err, "call_id=%d chunk_index=%d cache_epoch=%d group=%s mesh_rank=%d peer=%d",
		m.ids.Call, m.ids.Chunk, m.ids.Epoch, MeshName, m.rank, peer)
}

// AllGatherInt returns a number of each rank.
func (m *Mesh) AllGatherInt(own int64) ([]int64, error) {
	blocks, err := m.AllGather(binary.LittleEndian.AppendUint64(nil, uint64(own)))
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(blocks))
	for i, b := range blocks {
		if len(b) != 8 {
			return nil, fault.New(fault.Corrupt, "mesh rank %d sent %d bytes instead of a number", i, len(b))
		}
		out[i] = int64(binary.LittleEndian.Uint64(b))
	}
	return out, nil
}

// AllGatherFloats returns the numbers of each rank, which may differ in how many they are.
// They are valid until the next call.
func (m *Mesh) AllGatherFloats(own []float32) ([][]float32, error) {
	m.own = m.own[:0]
	for _, v := range own {
		m.own = binary.LittleEndian.AppendUint32(m.own, math.Float32bits(v))
	}
	blocks, err := m.AllGather(m.own)
	if err != nil {
		return nil, err
	}
	if m.floats == nil {
		m.floats = make([][]float32, len(m.peers))
	}
	for i, b := range blocks {
		f := m.floats[i][:0]
		for at := 0; at+4 <= len(b); at += 4 {
			f = append(f, math.Float32frombits(binary.LittleEndian.Uint32(b[at:])))
		}
		m.floats[i] = f
	}
	return m.floats, nil
}

// AllReduce replaces x by the sum over all ranks, which all pass equally many numbers. Each
// element is added in the order of the ranks.
func (m *Mesh) AllReduce(x []float32) error {
	blocks, err := m.AllGatherFloats(x)
	if err != nil {
		return err
	}
	clear(x)
	for rank, b := range blocks {
		if len(b) != len(x) {
			return fault.New(fault.Corrupt, "mesh rank %d sent %d numbers instead of %d", rank, len(b), len(x))
		}
		for i, v := range b {
			x[i] += v
		}
	}
	return nil
}

// Broadcast sends the leader's message to the other ranks.
func (m *Mesh) Broadcast(p *wire.Prepared) error {
	if m.rank != 0 {
		return fault.New(fault.Internal, "mesh rank %d broadcasts: only the leader may", m.rank)
	}
	for _, c := range m.peers {
		if c != nil {
			if err := c.Send(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Receive returns the leader's next message, until the deadline. A terminal one is a
// TerminatedError.
func (m *Mesh) Receive(deadline time.Time) (*wire.Envelope, error) {
	h, e, err := receive(m.peers[0], deadline, m.contract)
	if err == nil && e == nil {
		err = fault.New(fault.Corrupt, "a frame of the kind %d: an envelope of the leader is expected", h.Kind)
	}
	return e, err
}

// Terminate tells all peers that this rank ends, as far as they can be reached: so none
// waits for it.
func (m *Mesh) Terminate(p *wire.Prepared) {
	for _, c := range m.peers {
		if c != nil {
			_ = c.Send(p)
		}
	}
}

// Close ends the connections.
func (m *Mesh) Close() { closeAll(m.peers) }
