package stack

import (
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/record"
)

// lambdaService is the service that assumes the functions' roles.
const lambdaService = "lambda.amazonaws.com"

// clockPrefix is the key prefix of the objects by which a worker compares its
// clock with S3's. The worker deletes its own; no other program reads them.
const clockPrefix = record.PendingPrefix + "clock-"

// Patterns of the table's partitions, as shared/aws names them. The first ones each
// hold the documents whose keys begin so. Other documents are found only by their keys; their
// partitions end in two hexadecimal digits.
const (
	runs         = "run/"
	beats        = "beat/"
	workers      = "worker/"
	fleets       = "fleet/"
	open         = "open/"
	ended        = record.EndedPrefix
	found        = record.FoundPrefix
	names        = record.NamedPrefix
	poolLimits   = record.LimitPrefix
	snapshots    = "snapshot/"
	references   = "content/" // which snapshots need an object of contents
	installation = "installation/"
	uploads      = "uploads/"
	inParts      = record.UploadPrefix
	told         = record.NotifyPrefix
	batches      = record.BatchPrefix
	newest       = record.CreatedPrefix
	files        = record.FilePrefix
	outbox       = record.OutboxPrefix
	shards       = "shard-??"
	others       = "??" // plans, coordinators and controls
)

// functionGrants returns the statements that a function needs for its work. The
// permission to write its log is added by function.
func (b *builder) functionGrants(function string) []grant {
	pools := queueNames(b.Deployment)[1:]
	switch function {
	case submit:
		return join(
			// work/ and runs/ of parents.
			b.readObjects(record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix),
			b.createObjects(record.RunsPrefix), // the summary of a refused run
			b.readOwner(),
			b.claimBucket(),
			b.readDocuments(),
			b.writeDocuments(runs, open, names, installation, batches), // of batches, what is wrong with their lines
			b.invokeFunctions(plan),
			b.sendMessages(deadTasks()),
		)
	case plan:
		return join(
			// runs/ has the files of parents.
			b.readObjects(record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix),
			b.createObjects(record.WorkPrefix),
			b.readDocuments(),
			b.writeDocuments(others),
			b.invokeFunctions(plan),
			b.sendMessages(host.CoordinateQueue, deadTasks()),
		)
	case coordinate:
		return join(
			b.readObjects(record.WorkPrefix, record.RunsPrefix), // runs/ has the summaries of ended runs
			b.createObjects(record.WorkPrefix),                  // what variants a run has pruned
			b.readDocuments(),
			b.queryDocuments(beats),
			b.writeDocuments(append(b.fleetDocuments(), workers, shards, others)...),
			b.receiveMessages(host.CoordinateQueue),
			b.sendMessages(pools...),
			b.invokeFunctions(plan, finalize),
			b.scaleFleets(),
		)
	case finalize:
		return join(
			b.readObjects(record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix),
			b.listObjects(record.WorkPrefix),
			b.createObjects(record.WorkPrefix, record.RunsPrefix),
			b.readDocuments(),
			b.invokeFunctions(finalize),
			b.sendMessages(host.CoordinateQueue, deadTasks()),
		)
	case reclaim:
		written := []string{beats, workers, open, ended, names, uploads, told, outbox}
		deleted := []string{beats, workers, open, outbox, inParts, files}
		// Runs and ended: for the index of those of an earlier version.
		listed := []string{beats, open, runs, ended, outbox, inParts, files}
		if b.Deployment.Storage.KeepDocuments > 0 { // the documents of runs expire
			written = append(written, found)
			deleted = append(deleted, runs, ended, names, told, batches, newest, shards, others)
			listed = append(listed, names)
		}
		return join(
			// The roles of shards, and what runs came to.
			b.readObjects(record.WorkPrefix, record.RunsPrefix+"*/"+record.SummaryFile),
			// To find uploads whose event was lost, and what uploads to the API have left behind.
			b.listObjects(record.PromptsPrefix, record.FilesPrefix, record.UploadPartsPrefix),
			b.deleteObjects(record.FilesPrefix, record.UploadPartsPrefix),
			b.readOwner(),
			b.readDocuments(),
			b.queryDocuments(listed...),
			b.writeDocuments(append(b.fleetDocuments(), written...)...),
			b.deleteDocuments(deleted...),
			b.measureQueues(pools...),
			b.sendMessages(host.CoordinateQueue),
			b.invokeFunctions(submit, plan),
			b.scaleFleets(),
			b.putEvents(),
			b.readSecrets(func(name string) bool { return name == b.Deployment.Notify.Secret }),
		)
	case interrupt:
		return join(
			b.readDocuments(),
			b.queryDocuments(beats),
			b.writeDocuments(beats, workers, fleets),
			b.readMembership(),
			b.sendMessages(deadTasks()),
		)
	case api:
		return join(
			b.readObjects(record.PromptsPrefix, record.FilesPrefix, record.UploadPartsPrefix, record.WorkPrefix,
				record.RunsPrefix),
			b.listObjects(record.PromptsPrefix), // to find prompts without a run
			b.createObjects(record.FilesPrefix, record.UploadPartsPrefix),
			b.deleteObjects(record.FilesPrefix, record.RunsPrefix+"*/"+record.CompletionsFile,
				record.RunsPrefix+"*/"+record.ErrorsFile),
			b.readDocuments(),
			b.queryDocuments(runs, open, ended, found, names, beats, newest, files, snapshots),
			b.writeDocuments(batches, newest, files, inParts, others),
			b.deleteDocuments(files),
			b.measureAllQueues(),
			b.sendMessages(host.CoordinateQueue),
			b.invokeFunctions(submit),
			b.readSecrets(func(name string) bool { return name == tokenSecret }),
		)
	}
	return nil
}

// fleetDocuments returns the partition of what is seen of the groups of machines; nil if the
// stack has none.
func (b *builder) fleetDocuments() []string {
	if !b.Machines {
		return nil
	}
	return []string{fleets}
}

// trainerGrants returns the statements for the workers of a training pool. They keep
// snapshots: besides what workers do, they remove the copies from which a snapshot's object
// was made, and the snapshots that newer ones replace. They read no file of another run.
func (b *builder) trainerGrants(pool string) []grant {
	return join(
		b.readObjects(record.PromptsPrefix, record.WorkPrefix, record.PendingPrefix, contents),
		b.createObjects(record.WorkPrefix, record.PendingPrefix, contents),
		b.neverOverwrite(),
		b.deleteObjects(record.PendingPrefix, contents),
		b.readDocuments(),
		b.queryDocuments(beats, snapshots, references),
		b.writeDocuments(beats, shards, snapshots, references),
		b.deleteDocuments(snapshots, references),
		b.receiveMessages(poolQueues(pool)...),
		b.sendMessages(host.CoordinateQueue),
	)
}

// workerGrants returns the statements for the workers of a pool. A worker
// processes untrusted prompts, so it gets the least: it can't overwrite objects,
// and it writes only heartbeat and shard documents, and those that divide a limit if
// its pool has one, or may learn one from its server. All pools' limits are in one
// partition, which is the smallest thing that a policy can name: the workers of a
// limited pool may write other pools' limits. A machine that fetches a model reads the
// copies in the bucket, and creates one.
func (b *builder) workerGrants(pool string) []grant {
	written := []string{beats, shards}
	read := []string{record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix} // the last of parents
	created := []string{record.WorkPrefix, record.PendingPrefix, contents}
	if p := b.Deployment.Pool(pool); !p.Trains() && p.ModelSource() != config.ModelBuiltIn {
		read, created = append(read, record.ModelsPrefix), append(created, record.ModelsPrefix)
	}
	if b.Deployment.Pool(pool).Limited() || b.Deployment.LearnsLimits(pool, true) {
		written = append(written, poolLimits)
	}
	return join(
		b.readObjects(read...),
		b.createObjects(created...),
		b.neverOverwrite(),
		b.deleteObjects(clockPrefix),
		b.readDocuments(),
		b.queryDocuments(beats),
		b.writeDocuments(written...),
		b.receiveMessages(poolQueues(pool)...),
		b.sendMessages(host.CoordinateQueue),
		b.readSecrets(func(name string) bool { return name != tokenSecret && name != b.Deployment.Notify.Secret }),
	)
}
