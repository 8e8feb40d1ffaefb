// Package iam decides, as IAM documents it, whether a role of the deployed
// stack may do what it asks for: emulators let everybody do everything, and a
// role that lacks something would be found out in an account first.
//
// It reads the roles from the stack's template, and knows as much of policies
// as they use: what it does not know, it refuses to read.
package iam
