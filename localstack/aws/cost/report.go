package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"rollout/localstack/aws/fakeaws"
)

// Report is what the command says.
type Report struct {
	Shards  int     `json:"shards"`
	Samples int     `json:"samples"`
	Workers int     `json:"workers"`
	Seconds float64 `json:"seconds"`
	Prices  string  `json:"prices"`

	Counted []Counted `json:"counted"`
	Minute  []Counted `json:"idle_minute"`
	Budget  []Budget  `json:"budget"`

	// Million are the lines of a million samples: Ours but for the workers'
	// time, which costs a worker's heartbeats and looks at its run.
	Rate         float64 `json:"samples_a_second_of_a_worker"`
	Ours         []Line  `json:"million_samples"`
	Time         []Line  `json:"million_samples_worker_time"`
	Naive        []Line  `json:"million_samples_naive"`
	Million      float64 `json:"dollars_a_million"`
	NaiveMillion float64 `json:"dollars_a_million_naive"`
	Times        float64 `json:"times_below_naive"`

	Month          []Line  `json:"idle_month"`
	MonthDollars   float64 `json:"dollars_idle_month"`
	MonthAfterFree float64 `json:"dollars_idle_month_after_free"`
	MonthWithToken float64 `json:"dollars_idle_month_with_api_token"`
}

// Counted is what was counted of a kind of request.
type Counted struct {
	Service   string  `json:"service"`
	Operation string  `json:"operation"`
	About     string  `json:"about"`
	Caller    string  `json:"caller"`
	Requests  int     `json:"requests"`
	Units     float64 `json:"units,omitempty"`
	Each      float64 `json:"each"` // a shard, or a minute
}

// Budget holds counts against what the design allows.
type Budget struct {
	What      string  `json:"what"`
	PerShard  float64 `json:"per_shard"`
	PerSample float64 `json:"per_sample"`
	Allowed   float64 `json:"allowed_per_shard"`
}

// ofTime reports whether a request comes with a worker's time, not with its
// work: heartbeats, and looks at whether it shall drain, pause or do something
// else.
func ofTime(k fakeaws.RequestKind) bool {
	if k.Caller != "worker" {
		return false
	}
	return k.Service == fakeaws.DynamoDB && slices.Contains([]string{"beat", "worker", "control"}, k.Resource) ||
		k.Service == fakeaws.SQS && strings.HasPrefix(k.Resource, "urgent-") && k.Operation == "ReceiveMessage"
}

// work is how often a request of a run is counted as one of its work.
func work(k fakeaws.RequestKind) float64 {
	if k.Caller == "user" || ofTime(k) {
		return 0
	}
	return 1
}

func newReport(m measurement, p prices) Report {
	r := Report{Shards: m.Shards, Samples: m.Samples, Workers: m.workers, Seconds: m.Seconds, Rate: m.rate,
		Prices: fmt.Sprintf("%s, %s, %s", p.Region, p.Date, p.Source)}
	r.Counted, r.Minute = counted(m.Run, m.Shards), counted(m.Minute, minutes)
	r.Budget = budget(m)

	ours := requests(m.Run, work)
	ours.functions(m.Calls)
	r.Ours = ours.lines(p, 1e6/float64(m.Samples))
	time := requests(m.Run, func(k fakeaws.RequestKind) float64 {
		if ofTime(k) {
			return 1
		}
		return 0
	})
	r.Time = time.lines(p, 1e6/m.rate/m.WorkerSeconds)
	r.Naive = naive(p, 1e6)
	work, _ := total(r.Ours)
	spent, _ := total(r.Time)
	r.Million = work + spent
	r.NaiveMillion, _ = total(r.Naive)
	r.Times = r.NaiveMillion / r.Million

	r.Month = month(m, p)
	r.MonthDollars, r.MonthAfterFree = total(r.Month)
	r.MonthWithToken = r.MonthDollars + p.Secret
	return r
}

// counted lists what was counted, by service.
func counted(counts map[fakeaws.RequestKind]fakeaws.Count, shards int) (out []Counted) {
	for k, c := range counts {
		out = append(out, Counted{k.Service, k.Operation, k.Resource, k.Caller, c.Requests, c.Units, float64(c.Requests) / float64(shards)})
	}
	slices.SortFunc(out, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Operation+a.About+a.Caller, b.Operation+b.About+b.Caller))
	})
	return out
}

// budget counts what the design bounds: all that comes with shards, not with
// time.
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

func (r Report) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "One run of %d shards, %d samples, %d workers, in %.0f s.\n\n", r.Shards, r.Samples, r.Workers, r.Seconds)
	requests := func(of string, all []Counted) {
		fmt.Fprintln(t, "SERVICE\tREQUEST\tABOUT\tBY\tREQUESTS\tUNITS\tA "+of)
		for _, c := range all {
			units := ""
			if c.Units > 0 {
				units = fmt.Sprintf("%.0f", c.Units)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%.2f\n", c.Service, c.Operation, c.About, c.Caller, c.Requests, units, c.Each)
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
	fmt.Fprintf(t, "Shards that end within seconds of each other share requests and steps: here %.1f end in a second.\n", float64(r.Shards)/r.Seconds)
	table := func(title string, lines []Line) {
		fmt.Fprintf(t, "\n%s\tCOUNT\t\tDOLLARS\n", title)
		for _, l := range lines {
			fmt.Fprintf(t, "%s\t%.2f\t%s\t%.4f\n", l.What, l.Count, l.Unit, l.Dollars)
		}
	}
	table("A MILLION SAMPLES", r.Ours)
	table(fmt.Sprintf("AND THE TIME OF WORKERS AT %.0f A SECOND", r.Rate), r.Time)
	table("WITHOUT SHARDS", r.Naive)
	fmt.Fprintf(t, "\na million samples: $%.3f; without shards: $%.2f, %.0f times as much\n", r.Million, r.NaiveMillion, r.Times)
	fmt.Fprintf(t, "\n%d idle minutes:\n", minutes)
	requests("MINUTE", r.Minute)
	table("AN IDLE MONTH", r.Month)
	fmt.Fprintf(t, "\nan idle month: $%.2f at list prices, $%.2f beside what is always free; with the secret api-token $%.2f\n", r.MonthDollars, r.MonthAfterFree, r.MonthWithToken)
	fmt.Fprintf(t, "prices: %s\n", r.Prices)
	return t.Flush()
}
