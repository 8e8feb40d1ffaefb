// Package servers tests the product against real inference servers, vLLM and
// llama.cpp's, and starts them for the benchmarks.
//
// A server is a value of type Server, in a file of its own: how it is started and
// what it can. Server.Run starts it over a model that `rollout model export` wrote,
// and starts it again whenever it ends, as a supervisor does, until Running.Close.
// Meanwhile Running signals the server or the process in it that computes. The tests
// are one suite for all servers; they run the built program.
//
// The servers are installed by vllm/install.sh and llamacpp/install.sh in out/. That
// takes minutes and much disk, so the suite runs only if ROLLOUT_TEST_SERVER has the
// name of a server, as in `make test-vllm`; a server that is missing then is a
// failure.
package servers
