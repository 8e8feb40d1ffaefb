// Package observe has the observability of a process: loggers, the NDJSON event
// stream, spans of traces, and the liveness of workers.
//
// The wiring code of a program creates loggers, emitters and tracers once and passes
// them in. Logs and events never contain secrets: the values of attributes whose keys
// look like a secret's are replaced before they are written. The package makes no
// decisions, keeps no history and never stops a run: an Emitter that cannot write logs
// a warning and returns its first error from Err.
package observe
