package observe

// Keys of log attributes and of event fields. Each entity has one key everywhere, so that
// a search for its id finds all lines about it. `make lint` refuses other spellings
// ("run_id", "shardIndex", "err") of these keys.
const (
	KeyRun     = "run"      // a run's id
	KeyShard   = "shard"    // a shard's number in its run, from 0
	KeyItem    = "item"     // an item's index in its run, from 0
	KeyAttempt = "attempt"  // the fencing number of a shard's claim
	KeyWorker  = "worker"   // a worker's id
	KeyPool    = "pool"     // a pool's name
	KeyServer  = "server"   // an inference server's base URL
	KeyQueue   = "queue"    // a queue's name
	KeyMessage = "message"  // a queue message's id
	KeyPhase   = "phase"    // a run's phase
	KeyTrace   = "trace_id" // of the current span
	KeySpan    = "span_id"
	KeyError   = "error"
	KeyReason  = "reason" // an explanation for people
	KeyPID     = "pid"
)

// Keys is the list of all keys.
var Keys = []string{KeyRun, KeyShard, KeyItem, KeyAttempt, KeyWorker, KeyPool, KeyServer, KeyQueue, KeyMessage,
	KeyPhase, KeyTrace, KeySpan, KeyError, KeyReason, KeyPID}
