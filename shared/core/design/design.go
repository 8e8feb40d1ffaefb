// Package design lays out the trials of a run: which task is tried under which variant, how
// often, and in which order.
//
//	tasks × variants × replications ──Schedule──▶ trial 0, 1, 2, … each a Place
//	                                └──Slot─────▶ the trial's number whatever the order is
//
// A trial has two numbers. Its schedule index says when it is begun, and is its item index.
// Its slot says what it is, and is the same in every order. The seed of its sampling comes
// from the names of its task and variant and from its replication, so that a further task,
// variant or replication draws anew and changes no other trial.
//
// The package is pure: the same design gives the same schedule on every machine.
package design

import (
	"encoding/binary"
	"iter"

	"rollout/shared/core/identity"
)

// Order says in which order trials are begun.
type Order string

// The orders.
const (
	// ByTask begins all trials of a task, variant by variant, before the next task.
	ByTask Order = "task"
	// ByVariant begins all trials of a variant, task by task, before the next variant.
	ByVariant Order = "variant"
	// Interleaved begins one trial of each task under each variant, then the second ones: the
	// variants alternate, and what is done early compares all of them.
	Interleaved Order = "interleaved"
	// Random is a permutation that the seed decides.
	Random Order = "random"
)

// Design is the plan of a run of trials. Its three numbers are at least 0.
type Design struct {
	Tasks        int
	Variants     int
	Replications int // of each task under each variant
	Order        Order
	Seed         uint64 // of Random
}

// Place says which trial one is. Its numbers count from 0.
type Place struct{ Task, Variant, Replication int }

// Trials returns how many trials the design has.
func (d Design) Trials() int { return d.Tasks * d.Variants * d.Replications }

// Slot returns the number of a trial by task, variant and replication, whatever the order is.
func (d Design) Slot(p Place) int {
	return (p.Task*d.Variants+p.Variant)*d.Replications + p.Replication
}

// placeOf is the inverse of Slot.
func (d Design) placeOf(slot int) Place {
	return Place{slot / d.Replications / d.Variants, slot / d.Replications % d.Variants, slot % d.Replications}
}

// Schedule yields all trials in the order in which they are begun. Random needs some 100
// bytes for each of them.
func (d Design) Schedule() iter.Seq[Place] {
	return func(yield func(Place) bool) {
		switch d.Order {
		case ByVariant:
			for v := range d.Variants {
				for t := range d.Tasks {
					for r := range d.Replications {
						if !yield(Place{t, v, r}) {
							return
						}
					}
				}
			}
		case Interleaved:
			for r := range d.Replications {
				for t := range d.Tasks {
					for v := range d.Variants {
						if !yield(Place{t, v, r}) {
							return
						}
					}
				}
			}
		case Random:
			for _, slot := range identity.Order(d.Seed, 0, d.Trials()) {
				if !yield(d.placeOf(slot)) {
					return
				}
			}
		default: // ByTask: the order of the slots
			for slot := range d.Trials() {
				if !yield(d.placeOf(slot)) {
					return
				}
			}
		}
	}
}

// seedMask keeps seeds within 31 bits, which every server accepts.
const seedMask = 1<<31 - 1

// SeedOf returns the seed of a trial's sampling: the first 4 bytes, LE, of blake3(run seed u64 ‖
// length of the task's id u64 ‖ id ‖ length of the variant's name u64 ‖ name ‖ replication u64),
// all LE, masked with 2³¹−1.
func SeedOf(seed uint64, task, variant string, replication int) int64 {
	b := binary.LittleEndian.AppendUint64(nil, seed)
	for _, name := range []string{task, variant} {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(name))), name...)
	}
	sum := identity.Content(binary.LittleEndian.AppendUint64(b, uint64(replication)))
	return int64(binary.LittleEndian.Uint32(sum[:4]) & seedMask)
}
