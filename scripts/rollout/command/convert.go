package command

import (
	"github.com/spf13/cobra"

	"rollout/scripts/rollout/convert"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/figures"
)

func convertCommand(e *Env) *cobra.Command {
	o := convert.Options{Stdin: e.In, Stdout: e.Out}
	c := &cobra.Command{
		Use:   "convert IN OUT",
		Short: "Convert a JSON, CSV or Parquet file to JSON lines, CSV or Parquet",
		Long: "Converts IN to the new file OUT, record by record: a JSON array, JSON objects on any number of lines, CSV\n" +
			"or Parquet becomes JSON lines, CSV or Parquet. The names' endings say the formats (.json, .jsonl, .ndjson,\n" +
			".csv, .tsv, .parquet), and .gz or .zst behind them that the file is packed; - is standard input or output.\n\n" +
			"Numbers keep their digits. Text in CSV stays text unless --types says otherwise; lists and objects are\n" +
			"JSON text in CSV. OUT appears when it is complete, or not at all.",
		Example: "  rollout convert prompts.json prompts.jsonl\n" +
			"  rollout convert questions.csv prompts.jsonl --columns prompt=question,id\n" +
			"  rollout convert completions.jsonl completions.parquet\n" +
			"  zcat rows.csv.gz | rollout convert - - --from csv | head",
		Args: arguments(0, "IN", "OUT"),
	}
	fs := c.Flags()
	fs.StringVar(&o.From, "from", "", "`format` of IN: json, jsonl, csv, tsv or parquet (default: by its name)")
	fs.StringVar(&o.To, "to", "", "`format` of OUT: jsonl, csv, tsv or parquet (default: by its name, else jsonl)")
	fs.StringSliceVar(&o.Columns, "columns", nil,
		"keep only these columns, in this order: `NAME` or NEW=OLD, separated by commas")
	fs.StringSliceVar(&o.Types, "types", nil,
		"types of CSV columns: `auto`, or COLUMN=TYPE with string, number, bool or json (default: all are strings)")
	fs.BoolVar(&o.Force, "force", false, "replace OUT if it exists")
	asJSON := fs.Bool("json", false, "print a summary as a JSON object; not with OUT -")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.In, o.Out = args[0], args[1]
		if *asJSON && o.Out == convert.Std {
			return usage(c, "--json and OUT - both write to standard output")
		}
		return e.convert(c, o, *asJSON)
	}
	return c
}

func (e *Env) convert(c *cobra.Command, o convert.Options, asJSON bool) error {
	var bar *progress.Transfer
	o.OnStart = func(total int64) {
		if total > 0 && !(o.Out == convert.Std && terminal.Is(e.Out)) {
			bar = e.transfer(e.Err, o.In, total)
		}
	}
	o.OnRead = func(n int) { bar.Add(n) }
	s, err := convert.Convert(c.Context(), o)
	bar.Close()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(e.Out, s)
	}
	for _, note := range s.Notes() {
		if err := e.say("%s", note); err != nil {
			return err
		}
	}
	return e.say("%s: %s of %s", stdName(s.Out, "standard output"), figures.Of(s.Rows, "row"), s.To)
}

// stdName returns a path, or the name of the stream that it stands for.
func stdName(path, stream string) string {
	if path == convert.Std {
		return stream
	}
	return path
}
