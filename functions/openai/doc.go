// Package openai serves files and batches as OpenAI's API does, so that clients of that API
// work with an installation. A batch is a run, and a run is a batch:
//
//	POST /v1/files ─▶ files/<id>, then file/<id>
//	POST /v1/batches ─▶ batch/<run>, created/<time>.<run> ─BatchRequested─▶ submit ─▶ run/<run>
//	GET /v1/batches ─▶ created/… ─▶ batch/<run>, status of the run
//	POST /v1/uploads ─▶ upload/<id>
//	     …/parts ─▶ pending/parts/<upload>/<part>
//	     …/complete ─▶ upload/<id> (claim) ─▶ files/<id>.<claim> ─▶ upload/<id> (completed)
//	                ─▶ file/<id>
//
// The id of a batch is "batch_" and the id of its run. The id of a file is "file-" and 26
// characters; the input and the output files of every run are files as well, whose ids are
// "file-", the id of the run and "-input", "-output" or "-error".
//
//	phase                                    status of the batch
//	no manifest yet, planning                validating
//	running, paused                          in_progress
//	ending, finalizing                       finalizing, or cancelling if a user stopped it
//	completed, completed_with_errors         completed
//	stopped / expired                        cancelled / expired
//	over_budget, failed, refused             failed
//
// An upload takes parts while it is pending. Its document decides: what is stored is deleted, and
// a file made, only after it.
//
//	pending ─complete─▶ completed
//	        ─cancel───▶ cancelled
//	        ─an hour──▶ expired, once a request finds it
//
// A day after its creation an upload is not known any more. Reclaim deletes what is left of it
// then, objects of files that were never made, and files that expired long ago: see
// reclaim.SweepOrphans.
//
// Answers have at most 64 KiB, but for the contents of files: a list ends earlier than its client
// asks for, and says that there is more. It reads a bounded number of documents.
//
// Bad lines fail alone, unless the batch is strict: any other fails as a whole only if its file
// can't be read or its run can't be made. The source of the API is
// https://platform.openai.com/docs/api-reference/batch, and its Python client.
package openai
