// Package observe is what a process says about itself: log lines for people or
// machines, and the NDJSON event stream of a run.
//
// Loggers and emitters are made once by wiring code and passed in. Secrets
// never reach either: attributes whose keys look like a secret's are replaced
// before anything is written. The package decides nothing, keeps no history
// and never stops a run: an emitter that can't write says so when asked.
package observe
