// Package artifact freezes what an agent's folder starts with: a folder of a bucket, or a .tar in
// it, becomes one object that is named by its content.
//
//	agents/mine/… or agents/mine.tar ─Pin─▶ cas/… (agent_artifact_v1) ─Unpack─▶ a folder of a worker
//
// The object is a tar of regular files and nothing else: no links, devices or folders by
// themselves, no name that leads out of the folder. Pin refuses what has more, and Unpack does
// so again, because the bucket may hold an object that Pin has not made. Files of a folder may
// be executed, since buckets know no modes; those of a .tar as it says.
//
// Runs share an object of the same content. Package snapshot counts who needs it, and reclaim
// deletes it when the last run of it expires. One that a preflight has frozen alone stays.
//
// The package runs nothing, and keeps no state.
package artifact
