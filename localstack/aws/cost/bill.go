package main

import (
	"math"
	"strings"

	"rollout/localstack/aws/fakeaws"
	catalog "rollout/shared/prices"
)

// Line is one position of a bill.
type Line struct {
	What    string  `json:"what"`
	Count   float64 `json:"count"`
	Unit    string  `json:"unit"`
	Dollars float64 `json:"dollars"`
	// AfterFree is the cost after the permanent free tier; nil if it has none.
	AfterFree *float64 `json:"dollars_after_free,omitempty"`
}

// total sums the lines at list prices and after the free tier.
func total(lines []Line) (list, afterFree float64) {
	for _, l := range lines {
		list += l.Dollars
		if l.AfterFree != nil {
			afterFree += *l.AfterFree
		} else {
			afterFree += l.Dollars
		}
	}
	return list, afterFree
}

// isRead reports whether an operation of DynamoDB reads.
func isRead(operation string) bool {
	return strings.HasPrefix(operation, "Get") || strings.HasPrefix(operation, "BatchGet") || operation == "Query" ||
		operation == "Scan"
}

// putClass reports whether S3 bills an operation as a PUT. Deletions are free.
func putClass(operation string) bool {
	return strings.HasPrefix(operation, "Put") || strings.HasPrefix(operation, "Copy") ||
		strings.HasPrefix(operation, "Upload") ||
		strings.HasPrefix(operation, "List") || operation == "CreateMultipartUpload" || operation == "CompleteMultipartUpload"
}

// Positions of a bill, in their order.
const (
	objectPuts  = catalog.S3Puts
	objectGets  = catalog.S3Gets
	writes      = catalog.DynamoDBWrites
	reads       = catalog.DynamoDBReads
	messages    = catalog.SQSRequests
	secrets     = catalog.SecretRequests
	busEvents   = catalog.BusEvents
	invocations = catalog.LambdaCalls
	durations   = catalog.LambdaTime
	logs        = catalog.LambdaLogs
)

// sums are the billed units by position.
type sums map[string]float64

// requests sums the billed units of requests, each multiplied by its scale.
func requests(counts map[fakeaws.RequestKind]fakeaws.Count, scale func(fakeaws.RequestKind) float64) sums {
	s := sums{}
	for k, c := range counts {
		n := float64(c.Requests) * scale(k)
		switch {
		case n == 0:
		case k.Service == fakeaws.S3 && putClass(k.Operation):
			s[objectPuts] += n
		case k.Service == fakeaws.S3 && !strings.HasPrefix(k.Operation, "Delete") && !strings.HasPrefix(k.Operation, "Abort"):
			s[objectGets] += n
		case k.Service == fakeaws.DynamoDB && isRead(k.Operation):
			s[reads] += c.Units * scale(k)
		case k.Service == fakeaws.DynamoDB:
			s[writes] += c.Units * scale(k)
		case k.Service == fakeaws.SQS:
			each := math.Max(1, math.Ceil(float64(c.BytesIn)/float64(c.Requests)/(64<<10)))
			s[messages] += n * each
		case k.Service == fakeaws.Secrets:
			s[secrets] += n
		case k.Service == fakeaws.EventBridge:
			s[busEvents] += n // of one event each
		}
	}
	return s
}

const logBytes = 350 // that Lambda itself logs of an invocation

// functions adds the billed units of invocations.
func (s sums) functions(calls map[string]fakeaws.Calls) {
	for name, c := range calls {
		s[invocations] += float64(c.Count)
		s[durations] += c.Billed.Seconds() * float64(fakeaws.Memory(name)) / 1024
		s[logs] += float64(c.Count) * logBytes / 1e9
	}
}

// lines prices the sums, multiplied by times.
func (s sums) lines(p prices, times float64) (out []Line) {
	for _, of := range []struct {
		what, unit string
		price      float64
	}{
		{objectPuts, "requests", p.S3Put}, {objectGets, "requests", p.S3Get}, {writes, "units", p.Write},
		{reads, "units", p.Read},
		{messages, "requests", p.SQS}, {secrets, "requests", p.SecretRequest}, {busEvents, "events", p.BusEvent},
		{invocations, "invocations", p.Invocation},
		{durations, "GB-seconds", p.GBSecond}, {logs, "GB", p.LogGB},
	} {
		if n := s[of.what] * times; n > 0 {
			out = append(out, Line{What: of.what, Count: n, Unit: of.unit, Dollars: n * of.price})
		}
	}
	return out
}

// naive is the cost of samples in a design without shards. Each sample has a
// message, an object with its request and one with its answer, a document that is
// written when it is queued, started, finished and counted, and a function call.
func naive(p prices, samples float64) []Line {
	const memory, seconds = 0.125, 0.1
	return []Line{
		{What: messages, Count: 3 * samples, Unit: "requests", Dollars: 3 * samples * p.SQS},
		{What: objectPuts, Count: 2 * samples, Unit: "requests", Dollars: 2 * samples * p.S3Put},
		{What: objectGets, Count: 2 * samples, Unit: "requests", Dollars: 2 * samples * p.S3Get},
		{What: writes, Count: 4 * samples, Unit: "units", Dollars: 4 * samples * p.Write},
		{What: reads, Count: 2 * samples, Unit: "units", Dollars: 2 * samples * p.Read},
		{What: invocations, Count: samples, Unit: "invocations", Dollars: samples * p.Invocation},
		{What: durations, Count: samples * memory * seconds, Unit: "GB-seconds",
			Dollars: samples * memory * seconds * p.GBSecond},
	}
}

// Numbers of an idle month.
const (
	minutesAMonth = 30 * 24 * minutesAnHour
	minutesAnHour = 60
	// Lambda polls a mapped queue over five connections that wait 20 s each.
	pollsAMinute = 5 * 60 / 20
)

// month prices a month of minutes and hours like the counted idle ones.
func month(m measurement, p prices) []Line {
	each := requests(m.Minute, func(fakeaws.RequestKind) float64 { return 1.0 / minutes })
	for what, n := range requests(m.Hour, func(fakeaws.RequestKind) float64 { return 1.0 / minutesAnHour }) {
		each[what] += n
	}
	each[messages] += float64(m.PolledQueues * pollsAMinute)
	each.functions(map[string]fakeaws.Calls{"reclaim": {Count: 1, Billed: m.MinuteBilled}})
	lines := each.lines(p, minutesAMonth)
	lines = append(lines, Line{What: "CloudWatch alarms", Count: float64(m.alarms()), Unit: "alarms",
		Dollars: float64(m.alarms()) * p.Alarm})
	free := map[string]float64{messages: p.FreeSQS, invocations: p.FreeCalls, durations: p.FreeSeconds,
		"CloudWatch alarms": p.FreeAlarms, logs: p.FreeLogGB}
	for i, l := range lines {
		if given, ok := free[l.What]; ok {
			rest := l.Dollars * max(0, l.Count-given) / l.Count
			lines[i].AfterFree = &rest
		}
	}
	return lines
}

// alarms is the number of alarms: one for each dead letter queue, one for a work
// queue without workers, and one for a failing schedule.
func (m measurement) alarms() int { return m.DeadLetters + 2 }
