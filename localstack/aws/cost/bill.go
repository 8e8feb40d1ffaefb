package main

import (
	"math"
	"strings"

	"rollout/localstack/aws/fakeaws"
)

// Line is what one thing costs.
type Line struct {
	What    string  `json:"what"`
	Count   float64 `json:"count"`
	Unit    string  `json:"unit"`
	Dollars float64 `json:"dollars"`
	// Free is what remains of it beside what AWS always gives for nothing.
	AfterFree *float64 `json:"dollars_after_free,omitempty"`
}

// total sums lines.
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
	return strings.HasPrefix(operation, "Get") || strings.HasPrefix(operation, "BatchGet") || operation == "Query" || operation == "Scan"
}

// putClass reports whether S3 bills an operation as a PUT; deletions are free.
func putClass(operation string) bool {
	return strings.HasPrefix(operation, "Put") || strings.HasPrefix(operation, "Copy") || strings.HasPrefix(operation, "Upload") ||
		strings.HasPrefix(operation, "List") || operation == "CreateMultipartUpload" || operation == "CompleteMultipartUpload"
}

// group of lines, in their order.
const (
	objectPuts  = "S3 puts, copies, lists"
	objectGets  = "S3 gets"
	writes      = "DynamoDB writes"
	reads       = "DynamoDB reads"
	messages    = "SQS requests"
	secrets     = "Secrets Manager requests"
	invocations = "Lambda invocations"
	durations   = "Lambda durations"
	logs        = "CloudWatch logs"
)

// sums are units by what they are billed as.
type sums map[string]float64

// requests adds up what requests are billed as, each as often as scale says.
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
		}
	}
	return s
}

// logBytes is what Lambda itself logs of an invocation.
const logBytes = 350

// functions adds what invocations are billed as.
func (s sums) functions(calls map[string]fakeaws.Calls) {
	for name, c := range calls {
		s[invocations] += float64(c.Count)
		s[durations] += c.Billed.Seconds() * float64(fakeaws.Memory(name)) / 1024
		s[logs] += float64(c.Count) * logBytes / 1e9
	}
}

// lines prices the sums, times so much.
func (s sums) lines(p prices, times float64) (out []Line) {
	for _, of := range []struct {
		what, unit string
		price      float64
	}{
		{objectPuts, "requests", p.S3Put}, {objectGets, "requests", p.S3Get}, {writes, "units", p.Write}, {reads, "units", p.Read},
		{messages, "requests", p.SQS}, {secrets, "requests", p.SecretRequest}, {invocations, "invocations", p.Invocation},
		{durations, "GB-seconds", p.GBSecond}, {logs, "GB", p.LogGB},
	} {
		if n := s[of.what] * times; n > 0 {
			out = append(out, Line{What: of.what, Count: n, Unit: of.unit, Dollars: n * of.price})
		}
	}
	return out
}

// naive is what samples cost in a design without shards, of which each has a
// message, an object with its request and one with its answer, a document
// written when it is queued, when it begins, when it ends and when it is
// counted, and a function that is called for it.
func naive(p prices, samples float64) []Line {
	const memory, seconds = 0.125, 0.1
	return []Line{
		{What: messages, Count: 3 * samples, Unit: "requests", Dollars: 3 * samples * p.SQS},
		{What: objectPuts, Count: 2 * samples, Unit: "requests", Dollars: 2 * samples * p.S3Put},
		{What: objectGets, Count: 2 * samples, Unit: "requests", Dollars: 2 * samples * p.S3Get},
		{What: writes, Count: 4 * samples, Unit: "units", Dollars: 4 * samples * p.Write},
		{What: reads, Count: 2 * samples, Unit: "units", Dollars: 2 * samples * p.Read},
		{What: invocations, Count: samples, Unit: "invocations", Dollars: samples * p.Invocation},
		{What: durations, Count: samples * memory * seconds, Unit: "GB-seconds", Dollars: samples * memory * seconds * p.GBSecond},
	}
}

// Of a month in which nothing happens.
const (
	minutesAMonth = 30 * 24 * 60
	// Lambda polls a queue of its own accord by five connections that wait 20 s
	// each.
	pollsAMinute = 5 * 60 / 20
)

// month prices a month of which every minute is as the one that was counted.
func month(m measurement, p prices) []Line {
	each := requests(m.Minute, func(fakeaws.RequestKind) float64 { return 1.0 / minutes })
	each[messages] += float64(m.PolledQueues * pollsAMinute)
	each.functions(map[string]fakeaws.Calls{"reclaim": {Count: 1, Billed: m.MinuteBilled}})
	lines := each.lines(p, minutesAMonth)
	lines = append(lines, Line{What: "CloudWatch alarms", Count: float64(m.alarms()), Unit: "alarms", Dollars: float64(m.alarms()) * p.Alarm})
	free := map[string]float64{messages: p.FreeSQS, invocations: p.FreeCalls, durations: p.FreeSeconds, "CloudWatch alarms": p.FreeAlarms, logs: p.FreeLogGB}
	for i, l := range lines {
		if given, ok := free[l.What]; ok {
			rest := l.Dollars * max(0, l.Count-given) / l.Count
			lines[i].AfterFree = &rest
		}
	}
	return lines
}

// alarms are one for each queue of dead letters, one for a queue that nobody
// works on, and one for a schedule that fails.
func (m measurement) alarms() int { return m.DeadLetters + 2 }
