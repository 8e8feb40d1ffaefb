package rollout

import (
	"testing"

	"rollout/shared/config"
)

// TestShardsOfABatchFollowTheFormula compares with the formula of the design of
// ticket-parallel rollouts, for W shards: counts[r] = B//W + (r < B%W). Empty shards are
// left out.
func TestShardsOfABatchFollowTheFormula(t *testing.T) {
	t.Parallel()
	const members = 3
	for b := range 51 {
		for w := 1; w <= 16; w++ {
			s := Stage{Kind: Answering, From: 7, To: 7 + b, Members: members}
			got := s.Shards(config.Run{Runner: &config.Runner{RolloutBatchSize: 50, Parallelism: w}})
			for r := range w {
				count := b / w
				if r < b%w {
					count++
				}
				if count == 0 {
					continue
				}
				if len(got) == 0 || got[0] != count*members {
					t.Fatalf("shard %d of %d tickets over %d is not %d answers: %v left", r, b, w, count*members, got)
				}
				got = got[1:]
			}
			if len(got) > 0 {
				t.Fatalf("%d tickets over %d have %v more", b, w, got)
			}
		}
	}
}

// TestShardsWithoutParallelismHaveAbout256Answers checks shards that depend on nothing but
// the batch: nobody needs to be alive.
func TestShardsWithoutParallelismHaveAbout256Answers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tickets, members, parallelism, shards, largest int }{
		{0, 4, 0, 0, 0},
		{1, 4, 0, 1, 4},
		{64, 4, 0, 1, 256},
		{65, 4, 0, 2, 33 * 4},
		{64, 5, 0, 2, 32 * 5}, // ⌊256/5⌋ = 51 tickets a shard
		{3, 256, 0, 3, 256},   // a ticket a shard
		{4, 256, 0, 4, 256},
		{65536, 1, 0, 256, 256},
		{65536, 1, 1, 16, 4096}, // one share, which is more than a shard may have
		{65536, 1, 3, 18, 3641},
	} {
		run := config.Run{Runner: &config.Runner{Parallelism: c.parallelism}}
		got := Stage{Kind: Answering, To: c.tickets, Members: c.members}.Shards(run)
		sum, largest := 0, 0
		for _, n := range got {
			sum, largest = sum+n, max(largest, n)
		}
		if sum != c.tickets*c.members || len(got) != c.shards || largest != c.largest {
			t.Errorf("%d tickets × %d over %d: %d shards of at most %d with %d answers", c.tickets, c.members, c.parallelism,
				len(got), largest, sum)
		}
	}
}

// TestBatchesCoverTheOrderOnce follows the stages of a run to its end.
func TestBatchesCoverTheOrderOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tickets, size, want int }{{1, 64, 1}, {64, 64, 1}, {65, 64, 2}, {10, 1, 10}, {7, 3, 3}} {
		run := config.Run{Runner: &config.Runner{RolloutBatchSize: c.size}, Missions: twoMissions}
		f := newFixture(t, run)
		s, more := first(f.m, Book{Tickets: c.tickets, Refused: 2}), true
		at, batches := 0, 0
		for ; more; batches++ {
			if s.From != at || s.To <= s.From || s.To-s.From > c.size || s.Batch != batches || s.Input != 1+batches ||
				s.Totals.Tickets != at || s.Batches(run) != c.want || s.Items != s.To-s.From || s.Refused != 2 {
				t.Fatalf("batch %d of %+v is %+v", batches, c, s)
			}
			for _, m := range twoMissions {
				if step, ok := s.Guidance[m.Name]; step != 0 || !ok {
					t.Errorf("mission %s sees the step %d, %v", m.Name, step, ok)
				}
			}
			at = s.To
			s, more = s.nextBatch(run)
			s.Totals = Totals{Tickets: at}
		}
		if at != c.tickets || batches != c.want {
			t.Errorf("%+v: %d batches with %d tickets", c, batches, at)
		}
	}
}

func TestProgressIsThatOfTheNewestBatch(t *testing.T) {
	t.Parallel()
	run := config.Run{Runner: &config.Runner{RolloutBatchSize: 4}, Missions: twoMissions}
	f := newFixture(t, run)
	s := first(f.m, Book{Tickets: 10, Refused: 1})
	if p := s.Progress(run); p.Batch != 1 || p.Batches != 3 || p.AllTickets != 10 || p.AllItems != 10 || p.Refused != 1 ||
		p.Tickets != 0 || p.Agreement != nil || p.Accuracy != nil || p.Score != nil {
		t.Errorf("at first: %+v", p)
	}
	s, _ = s.nextBatch(run)
	s.Totals = Totals{Tickets: 4, Answered: 3, Failed: map[string]int{"engine": 1}, Selected: 2, Agreement: 1.5,
		Labelled: 2, Right: 1, Scored: 4, Score: 1}
	p := s.Progress(run)
	if p.Batch != 2 || p.Tickets != 4 || *p.Agreement != 0.75 || *p.Accuracy != 0.5 || *p.Score != 0.25 ||
		p.Failed["engine"] != 1 {
		t.Errorf("after a batch: %+v", p)
	}
}
