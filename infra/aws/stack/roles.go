package stack

import (
	"rollout/shared/host"
	"rollout/shared/record"
)

// lambdaService is who takes on the functions' roles.
const lambdaService = "lambda.amazonaws.com"

// clockPrefix begins the keys of the objects by which a worker compares its clock
// with S3's. Nobody reads them, so it removes its own.
const clockPrefix = record.PendingPrefix + "clock-"

// Partitions of the table, as shared/aws names them: those whose documents are
// listed, and those of documents that are found by their key alone, which end
// in two hexadecimal digits.
const (
	runs    = "run/"
	beats   = "beat/"
	workers = "worker/"
	fleets  = "fleet/"
	open    = "open/"
	shards  = "shard-??"
	others  = "??" // plans, coordinators and controls
)

// grants are what a function may do, beside writing its log: what it does, and
// no more.
func (b *builder) grants(function string) []grant {
	pools := queueNames(b.Deployment)[1:]
	switch function {
	case submit:
		return join(
			b.read(record.PromptsPrefix, record.RunsPrefix), b.create(record.RunsPrefix), // the summary of a run that is refused
			b.load(), b.save(runs, open),
			b.invoke(plan), b.send(deadTasks()))
	case plan:
		return join(
			b.read(record.PromptsPrefix, record.WorkPrefix), b.create(record.WorkPrefix),
			b.load(), b.save(others),
			b.invoke(plan), b.send(host.CoordinateQueue, deadTasks()))
	case coordinate:
		return join(
			b.read(record.WorkPrefix, record.RunsPrefix), // a summary says what became of a run
			b.load(), b.list(beats), b.save(workers, shards, others),
			b.receive(host.CoordinateQueue), b.send(pools...),
			b.invoke(plan, finalize), b.fleets())
	case finalize:
		return join(
			b.read(record.PromptsPrefix, record.WorkPrefix, record.RunsPrefix), b.enumerate(record.WorkPrefix), b.create(record.WorkPrefix, record.RunsPrefix),
			b.load(),
			b.invoke(finalize), b.send(host.CoordinateQueue, deadTasks()))
	case reclaim:
		return join(
			b.load(), b.list(beats, open), b.save(beats, workers, open), b.remove(beats, workers, open),
			b.measure(pools...), b.send(host.CoordinateQueue),
			b.invoke(plan), b.fleets())
	case interrupt:
		return join(b.load(), b.list(beats), b.save(beats, workers, fleets), b.membership(), b.send(deadTasks()))
	case api:
		return join(
			b.read(record.PromptsPrefix, record.WorkPrefix, record.RunsPrefix), b.enumerate(record.PromptsPrefix), // prompts that no run was made of
			b.load(), b.list(runs, beats), b.save(others),
			b.measureAll(), b.send(host.CoordinateQueue),
			b.invoke(submit), b.secrets(func(name string) bool { return name == tokenSecret }))
	}
	return nil
}

// machine is what a worker of the pool may do. It answers whatever its prompts
// say, so it can do the least: it overwrites no object, and of the documents it
// writes heartbeats and shards alone.
func (b *builder) machine(pool string) []grant {
	return join(
		b.read(record.PromptsPrefix, record.WorkPrefix), b.create(record.WorkPrefix, record.PendingPrefix, contents), b.neverOverwrite(), b.unlink(clockPrefix),
		b.load(), b.list(beats), b.save(beats, shards),
		b.receive(poolQueues(pool)...), b.send(host.CoordinateQueue),
		b.secrets(func(name string) bool { return name != tokenSecret }))
}
