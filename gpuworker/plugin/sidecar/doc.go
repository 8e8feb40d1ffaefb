// Package sidecar runs plugins that are processes beside the worker.
//
//	Pool.Call ─▶ a free lane ─▶ its process ◀── Unix socket, one frame each way ──▶ reply
//	                 │ crashed, hung, broke the protocol
//	                 └─▶ killed, and started again after a wait that grows
//
// The worker listens at a socket that the plugin's user alone may use, in a folder of its own,
// and starts the program with the path in ROLLOUT_PLUGIN_SOCKET. The program connects, and answers
// one request after the other: "init", "preflight" if it asked for it, calls, and "shutdown".
// A process that is told to end has 2 s to do so, then it gets SIGTERM and after 2 s more SIGKILL,
// with all processes that it started.
//
// An untrusted plugin runs in a sandbox (see package isolation): with a copy of its folder, and
// without a network. A trusted one runs in its folder as the worker's user, with a short environment and limits
// of memory and open files. What a program writes to its standard output and error is logged, up
// to a bound.
//
// A call that a crash, a hang or a broken stream ends is Unavailable. Package sidecar does not
// repeat it: whose fault it was, the caller finds out.
package sidecar
