// Package iam decides whether a role of the stack allows a request, as IAM
// documents it. Emulators allow everything, so that a missing permission would
// first fail in a real account.
//
// It reads the roles from the stack's template. It implements the parts of
// policies that they use, and fails to read any other part.
package iam
