package rollout

import (
	"encoding/json"

	"rollout/shared/fault"
)

// Member is which member of which ticket an item of a rollout is.
type Member struct {
	Group   string // of the ticket
	Mission string // of the ticket, as its line has it; "" in a rollout of one mission
	Ticket  int    // its number
	Epoch   int
	Batch   int
	Step    int // of the guidance
	Decode  int
	Sample  int
}

// ReadMember reads an item's line.
func ReadMember(line []byte) (Member, error) {
	var tail lineTail
	if err := json.Unmarshal(line, &tail); err != nil {
		return Member{}, fault.WithKind(fault.Corrupt, err, "read a member's line")
	}
	of, err := restOf(tail.Ticket)
	if err != nil {
		return Member{}, err
	}
	return Member{Group: of.Group, Mission: of.Mission, Ticket: int(tail.Number), Epoch: tail.Epoch, Batch: tail.Batch,
		Step: tail.Step, Decode: tail.Decode, Sample: tail.Sample}, nil
}
