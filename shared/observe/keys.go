package observe

// Keys of log attributes and of fields of events. A thing has one spelling
// everywhere, so that a line about it is found by its id: `make lint` refuses
// another ("run_id", "shardIndex", "err"). Other keys are free.
const (
	KeyRun     = "run"      // a run's id
	KeyShard   = "shard"    // a shard's number in its run, from 0
	KeyItem    = "item"     // an item's index in its run, from 0
	KeyAttempt = "attempt"  // the claim of a shard
	KeyWorker  = "worker"   // a worker's id
	KeyPool    = "pool"     // a pool's name
	KeyServer  = "server"   // an inference server's base URL
	KeyQueue   = "queue"    // a queue's name
	KeyMessage = "message"  // a queue message's id
	KeyPhase   = "phase"    // a run's phase
	KeyTrace   = "trace_id" // of the span that the line was written in
	KeySpan    = "span_id"
	KeyError   = "error"
	KeyReason  = "reason" // why, for people
	KeyPID     = "pid"
)

// Keys is the whole table.
var Keys = []string{KeyRun, KeyShard, KeyItem, KeyAttempt, KeyWorker, KeyPool, KeyServer, KeyQueue, KeyMessage,
	KeyPhase, KeyTrace, KeySpan, KeyError, KeyReason, KeyPID}
