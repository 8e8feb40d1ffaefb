// Command cost computes what rollout's control plane costs on AWS, from counted
// requests. One run goes through the functions and workers as they are deployed,
// with the timings of a deployment, against package fakeaws, which counts the
// requests to each service. The command compares the counts with the design's
// budget, prices them with a dated table of list prices, and compares the cost
// with a design without shards. Then it counts the requests of idle minutes.
//
// The cost of machines, their disks and traffic out of AWS is not included.
package main
