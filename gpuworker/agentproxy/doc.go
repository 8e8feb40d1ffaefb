// Package agentproxy answers the model calls of one agent: a program that a worker runs in a
// sandbox, and that has no other way out.
//
//	agent ─HTTP─▶ forward of its sandbox ─▶ Proxy ─▶ the pool's servers
//	                                            │
//	                       requests, tokens, dollars against the agent's limits
//
// The agent's headers are dropped: the engine adds its own key, which the agent never gets. The
// model is the pool's, whatever the agent names. A limit that is reached answers 429, without
// an invitation to try again, to every call from then on, and stands in Use: it is an end of
// the trial, and no error. A call that may pass a limit together with those in progress waits for
// their end, so that the tokens and dollars of a trial may pass their limits by one call.
//
// A request has the members, and its messages and tools the forms, that the model alone answers;
// all others are refused with 400, counted, and named in Use. A server would fetch URLs for the
// agent, look in the web for it, or give it what others have left there. Files that it sends
// stand in the request as data: URLs, and are images, sounds and PDF documents. Members that would
// name other models, be paid otherwise or leave something at the server are dropped.
//
// The package keeps nothing of what is said, and repeats no call: the agent does, if it wants.
package agentproxy
