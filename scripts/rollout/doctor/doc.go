// Package doctor looks whether an installation in a cloud can be worked with
// from here, before a job depends on it: seven checks, one after the other,
// each of what the next ones need and of one port.
//
// A check that fails does not keep later ones from being made. What a check
// makes it removes, and it never touches what the product works with: objects
// are under pending/ with names of their own, messages go through a queue that
// nobody else receives from. It prints no secret, steers no run, and repairs
// nothing: it says what to do.
package doctor
