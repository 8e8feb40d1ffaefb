package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"rollout/localstack/aws/fakeaws"
)

// Report is the output of the command.
type Report struct {
	Shards  int     `json:"shards"`
	Samples int     `json:"samples"`
	Workers int     `json:"workers"`
	Seconds float64 `json:"seconds"`
	Prices  string  `json:"prices"`

	Counted []Counted `json:"counted"`
	Minute  []Counted `json:"idle_minute"`
	Hour    []Counted `json:"idle_hour"` // what is done once an hour beside
	Budget  []Budget  `json:"budget"`

	// Bills of a million samples. Ours has the cost of the work, Time that of the
	// workers' time: heartbeats and polls.
	Rate         float64 `json:"samples_a_second_of_a_worker"`
	Ours         []Line  `json:"million_samples"`
	Time         []Line  `json:"million_samples_worker_time"`
	Naive        []Line  `json:"million_samples_naive"`
	Million      float64 `json:"dollars_a_million"`
	NaiveMillion float64 `json:"dollars_a_million_naive"`
	Times        float64 `json:"times_below_naive"`

	// CountedDollars is the price of all counted requests and functions of the run, and
	// BilledDollars what its summary says of them.
	CountedDollars float64 `json:"dollars_counted"`
	BilledDollars  float64 `json:"dollars_billed"`

	Month          []Line  `json:"idle_month"`
	MonthDollars   float64 `json:"dollars_idle_month"`
	MonthAfterFree float64 `json:"dollars_idle_month_after_free"`
	MonthWithToken float64 `json:"dollars_idle_month_with_api_token"`
	StoredGB       float64 `json:"dollars_month_stored_gb"`

	// Steps is the bill of a training without its machine, Trainer that of an hour of its
	// machine, and TrainingDollars what both come to for the training, which took so long here.
	Steps           []Line  `json:"training"`
	Trainer         []Line  `json:"hour_of_training"`
	TrainingSeconds float64 `json:"training_seconds"`
	TrainingDollars float64 `json:"dollars_training"`
}

// Counted is the count of one kind of requests.
type Counted struct {
	Service   string  `json:"service"`
	Operation string  `json:"operation"`
	About     string  `json:"about"`
	Caller    string  `json:"caller"`
	Requests  int     `json:"requests"`
	Units     float64 `json:"units,omitempty"`
	Each      float64 `json:"each"` // per shard, or per minute
}

// What is allowed at list prices, in dollars.
const (
	mostForMillion = 0.06 // samples, with all that the workers that answer them ask for by time
	mostForMonth   = 1.0  // without work
)

// mostApart is the largest allowed difference between the dollars of a summary and the counted
// ones, as a part of these.
const mostApart = 0.10

// check returns an error for each price that is not allowed, and for a bill that does not agree
// with what was counted.
func (r Report) check() (err error) {
	for _, price := range []struct {
		what          string
		have, allowed float64
	}{{"a million samples", r.Million, mostForMillion}, {"an idle month", r.MonthDollars, mostForMonth}} {
		if price.have > price.allowed {
			err = errors.Join(err, fmt.Errorf("%s: $%.3f, allowed are $%.2f", price.what, price.have, price.allowed))
		}
	}
	if apart := math.Abs(r.BilledDollars - r.CountedDollars); apart > mostApart*r.CountedDollars {
		err = errors.Join(err, fmt.Errorf("the run's summary bills $%.5f for requests and functions, counted are $%.5f, "+
			"allowed are %.0f %% of difference: correct the counts in shared/prices", r.BilledDollars, r.CountedDollars,
			100*mostApart))
	}
	return err
}

// Budget compares a count with the design's budget.
type Budget struct {
	What      string  `json:"what"`
	PerShard  float64 `json:"per_shard"`
	PerSample float64 `json:"per_sample"`
	Allowed   float64 `json:"allowed_per_shard"`
}

// isPeriodic reports whether a worker sends a request periodically, independent of
// its work: heartbeats, slices of limits, and polls for marks, control and urgent work.
func isPeriodic(k fakeaws.RequestKind) bool {
	if k.Caller != "worker" {
		return false
	}
	return k.Service == fakeaws.DynamoDB && slices.Contains([]string{"beat", "worker", "control", "limit"}, k.Resource) ||
		k.Service == fakeaws.SQS && strings.HasPrefix(k.Resource, "urgent-") && k.Operation == "ReceiveMessage"
}

// work is the factor of a request in the cost of the work: 1, or 0 for requests of
// users and periodic ones.
func work(k fakeaws.RequestKind) float64 {
	if k.Caller == "user" || isPeriodic(k) {
		return 0
	}
	return 1
}

// periodic is the factor of a request in the cost of a worker's time.
func periodic(k fakeaws.RequestKind) float64 {
	if isPeriodic(k) {
		return 1
	}
	return 0
}

// newReport prices a measurement.
func newReport(m measurement, p prices) Report {
	r := Report{Shards: m.Shards, Samples: m.Samples, Workers: m.workers, Seconds: m.Seconds, Rate: m.rate,
		Prices: fmt.Sprintf("%s, %s, %s", p.Region, p.Date, p.Source)}
	r.Counted, r.Minute = counted(m.Run, m.Shards), counted(m.Minute, minutes)
	r.Hour = counted(m.Hour, 1)
	r.Budget = budget(m)

	ours := requests(m.Run, work)
	ours.functions(m.Calls)
	r.Ours = ours.lines(p, 1e6/float64(m.Samples))
	r.Time = requests(m.Run, periodic).lines(p, 1e6/m.rate/m.WorkerSeconds)
	r.Naive = naive(p, 1e6)
	work, _ := total(r.Ours)
	spent, _ := total(r.Time)
	r.Million = work + spent
	counted, _ := total(ours.lines(p, 1))
	beside, _ := total(requests(m.Run, periodic).lines(p, 1))
	r.CountedDollars, r.BilledDollars = counted+beside, m.Billed
	r.NaiveMillion, _ = total(r.Naive)
	r.Times = r.NaiveMillion / r.Million

	r.Month = month(m, p)
	r.MonthDollars, r.MonthAfterFree = total(r.Month)
	r.MonthWithToken, r.StoredGB = r.MonthDollars+p.Secret, p.StoredGB

	r.Steps, r.Trainer, r.TrainingSeconds = m.Training.steps(p), m.Training.hour(m, p), m.Training.Seconds
	asked, _ := total(r.Steps)
	r.TrainingDollars = asked + m.Training.machineOf(r.TrainingSeconds)
	return r
}

// counted lists the counts by service.
func counted(counts map[fakeaws.RequestKind]fakeaws.Count, shards int) (out []Counted) {
	for k, c := range counts {
		out = append(out, Counted{k.Service, k.Operation, k.Resource, k.Caller, c.Requests, c.Units,
			float64(c.Requests) / float64(shards)})
	}
	slices.SortFunc(out, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(b.Requests, a.Requests),
			cmp.Compare(a.Operation+a.About+a.Caller, b.Operation+b.About+b.Caller))
	})
	return out
}

// budget compares the requests of the work with the design's limits per shard.
func budget(m measurement) []Budget {
	sum := func(what string, allowed float64, is func(fakeaws.RequestKind) bool) Budget {
		n := 0.0
		for k, c := range m.Run {
			if work(k) > 0 && is(k) {
				n += float64(c.Requests)
			}
		}
		return Budget{what, n / float64(m.Shards), n / float64(m.Samples), allowed}
	}
	about := func(service string, names ...string) func(fakeaws.RequestKind) bool {
		return func(k fakeaws.RequestKind) bool { return k.Service == service && slices.Contains(names, k.Resource) }
	}
	return []Budget{
		sum("document writes", 2.2, func(k fakeaws.RequestKind) bool {
			return k.Service == fakeaws.DynamoDB && !isRead(k.Operation) && about(fakeaws.DynamoDB, "shard", "coordinator")(k)
		}),
		sum("object puts", 1, func(k fakeaws.RequestKind) bool {
			return k.Service == fakeaws.S3 && putClass(k.Operation) && k.Caller == "worker" && k.Resource == "work"
		}),
		sum("queue requests", 3, func(k fakeaws.RequestKind) bool { return k.Service == fakeaws.SQS }),
	}
}

// write prints the report as tables.
func (r Report) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "One run of %d shards, %d samples, %d workers, in %.0f s.\n\n", r.Shards, r.Samples,
		r.Workers, r.Seconds)
	requests := func(of string, all []Counted) {
		fmt.Fprintln(t, "SERVICE\tREQUEST\tABOUT\tBY\tREQUESTS\tUNITS\tA "+of)
		for _, c := range all {
			units := ""
			if c.Units > 0 {
				units = fmt.Sprintf("%.0f", c.Units)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%.2f\n", c.Service, c.Operation, c.About, c.Caller, c.Requests,
				units, c.Each)
		}
	}
	requests("SHARD", r.Counted)
	fmt.Fprintln(t, "\nBUDGET\tA SHARD\tALLOWED\tA SAMPLE\t")
	for _, b := range r.Budget {
		verdict := ""
		if b.PerShard > b.Allowed {
			verdict = "over"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.1f\t%.4f\t%s\n", b.What, b.PerShard, b.Allowed, b.PerSample, verdict)
	}
	fmt.Fprintf(t, "Shards that end close together share requests and steps: here %.1f end in a second.\n",
		float64(r.Shards)/r.Seconds)
	table := func(title string, lines []Line) {
		fmt.Fprintf(t, "\n%s\tCOUNT\t\tDOLLARS\n", title)
		for _, l := range lines {
			fmt.Fprintf(t, "%s\t%.2f\t%s\t%.4f\n", l.What, l.Count, l.Unit, l.Dollars)
		}
	}
	table("A MILLION SAMPLES", r.Ours)
	table(fmt.Sprintf("WORKER TIME AT %.0f SAMPLES A SECOND", r.Rate), r.Time)
	table("WITHOUT SHARDS", r.Naive)
	fmt.Fprintf(t, "\na million samples: $%.3f; without shards: $%.2f, %.0f times as much\n", r.Million,
		r.NaiveMillion, r.Times)
	fmt.Fprintf(t, "this run: counted $%.5f, billed by its summary $%.5f\n", r.CountedDollars, r.BilledDollars)
	fmt.Fprintf(t, "\n%d idle minutes:\n", minutes)
	requests("MINUTE", r.Minute)
	fmt.Fprint(t, "\nonce an hour beside:\n")
	requests("HOUR", r.Hour)
	table("AN IDLE MONTH", r.Month)
	fmt.Fprintf(t, "\nan idle month: $%.2f at list prices, $%.2f after the free tier; with the secret api-token $%.2f\n",
		r.MonthDollars, r.MonthAfterFree, r.MonthWithToken)
	fmt.Fprintf(t, "beside it, a month: what the bucket stores, such as a model of 15 GB $%.2f, and one of 140 GB $%.2f\n",
		15*r.StoredGB, 140*r.StoredGB)
	table(fmt.Sprintf("A TRAINING OF %d STEPS", trainingSteps), r.Steps)
	table("AN HOUR OF ITS MACHINE", r.Trainer)
	fmt.Fprintf(t, "\na training of %d steps: $%.4f with its machine, which is billed for a minute at least; "+
		"here it took %.0f s\n", trainingSteps, r.TrainingDollars, r.TrainingSeconds)
	fmt.Fprintf(t, "prices: %s\n", r.Prices)
	return t.Flush()
}
