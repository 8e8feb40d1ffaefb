// Package doctor checks whether an installation in a cloud can be used from this
// machine, before a job depends on it. It makes the checks of the provider, if it has
// any, and then those of the ports in order; each tests one port, and later ones need what
// earlier ones test.
//
// All checks are made, also after one failed. A check that can't be made from here is
// skipped, and says why. A check removes what it makes, and
// never touches the product's data: its objects have names of their own under
// pending/, and its messages go through a queue of its own. The package prints no
// secret, steers no run and repairs nothing; it reports what to do.
package doctor
