// Package fakecompute is Compute Engine's regional managed instance groups in this
// process, by Google's documentation: sizes, instances with numeric ids and names that
// come back, errors of creations, and deletions of single instances.
//
// A group works when Step is called: tests decide when machines come. Quota, stock,
// images and policies are what a test sets. Step and requests end and begin machines by
// the callbacks of Options, which may start real processes.
package fakecompute
