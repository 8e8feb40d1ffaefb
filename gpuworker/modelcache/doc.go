// Package modelcache brings a pool's model from the installation's bucket to a machine, and
// stores there what the machine's server fetched from the hub.
//
//	fetch: the bucket has the model ─▶ the server's own cache ─▶ the server finds it there
//	       it lacks all or a part   ─▶ said; the server fetches the rest from the hub
//	store: the server is ready, the bucket lacks some of it ─▶ verified by the hub ─▶ the bucket
//
// A model of the hub lies as Hugging Face's programs keep it, models--ORG--NAME/snapshots/
// COMMIT, so that a server needs no settings, and fetches what is absent by itself.
// llama.cpp's server keeps models so, too, and takes some of a model's files: the bucket has
// those by the name ORG/NAME:TAG.
//
// The server's container may write to its cache, and answers prompts of strangers: what it
// has is stored only if the hub tells the same digests, and links that lead out of the
// model's folder are not followed.
package modelcache
