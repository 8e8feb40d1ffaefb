// Package twoclouds tests that a bucket's objects mean the same on another cloud: what is
// copied from Cloud Storage to S3, or back, keeps its content ids, and a run goes on with
// the copies.
package twoclouds
