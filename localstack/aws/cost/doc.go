// Command cost says what rollout's control plane costs on AWS, from requests
// that are counted: one run goes through the functions and workers as they are
// deployed, at the timings of a deployment, before a stand-in that counts what
// they ask of each service. The counts are held against the design's budget,
// priced by a table with its date, and put next to a design without shards; and
// then it is counted what a minute costs in which nothing happens.
//
// Machines, what they store, and traffic out of AWS are not the control plane's
// and not in it.
package main
