// Package models keeps the files of models in an installation's bucket, by content, so that
// machines read them from there instead of from the hub.
//
//	models/content/<ab>/<id>             a block of a file: at most 8 MiB, named by its content
//	models/files/<ab>/<digest>           the blocks of a file whose digest the hub tells beforehand
//	models/hub/<org>/<name>/<commit>.json  the manifest of a revision of a model of the hub
//	models/hub/<org>/<name>/<tag>/<commit>.json  that of its .gguf files of one tag; see SplitTag
//	models/own/<name>/<id>.json          the manifest of any other model, named by its content
//
// A file is cut into blocks. Each is an object of its own, so that a reader takes many at
// once and verifies each by itself, an upload that broke goes on with the next block, two
// machines that store the same model share the work, and revisions share what they have in
// common.
//
//	blocks (create-only) ──▶ files/ (create-only) ──▶ manifest (create-only): the model is there
//
// The manifest comes last. Blocks without one are not believed, and cost their storage until
// the model is stored or removed. What is read is believed only if its content id is the one
// of the manifest. Objects are never replaced; only Remove deletes.
package models
