package setup

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// fileExporter writes each span as a line of OTLP JSON, the format that collectors write
// and read ("otlpjsonfile"). It writes a batch in one Write, so that processes may share a
// file.
type fileExporter struct{ w io.Writer }

// ExportSpans writes the spans.
func (f *fileExporter) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	var b []byte
	for _, s := range spans {
		line, err := json.Marshal(otlp(s))
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	_, err := f.w.Write(b)
	return err
}

// Shutdown does nothing: the caller that opened the file closes it.
func (f *fileExporter) Shutdown(context.Context) error { return nil }

// The part of OTLP JSON that rollout's spans need.
type (
	traces struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributes   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope scope       `json:"scope"`
		Spans []traceSpan `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	attributes struct {
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	traceSpan struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		Name         string     `json:"name"`
		Kind         int        `json:"kind"`
		Start        string     `json:"startTimeUnixNano"`
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       status     `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"` // protobuf's JSON encodes 64-bit integers as strings
	}
)

// Numbers of OTLP's enums.
const (
	kindInternal = 1
	statusError  = 2
)

// otlp converts a span.
func otlp(s sdk.ReadOnlySpan) traces {
	out := traceSpan{
		TraceID:    s.SpanContext().TraceID().String(),
		SpanID:     s.SpanContext().SpanID().String(),
		Name:       s.Name(),
		Kind:       kindInternal,
		Start:      nanos(s.StartTime()),
		End:        nanos(s.EndTime()),
		Attributes: keyValues(s.Attributes()),
	}
	if p := s.Parent(); p.SpanID().IsValid() && p.TraceID() == s.SpanContext().TraceID() {
		out.ParentSpanID = p.SpanID().String()
	}
	if s.SpanKind() > trace.SpanKindInternal {
		out.Kind = int(s.SpanKind())
	}
	if s.Status().Code == codes.Error {
		out.Status = status{statusError, s.Status().Description}
	}
	return traces{[]resourceSpans{{Resource: attributes{keyValues(s.Resource().Attributes())},
		ScopeSpans: []scopeSpans{{scope{s.InstrumentationScope().Name}, []traceSpan{out}}}}}}
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func keyValues(as []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(as))
	for i, a := range as {
		out[i].Key = string(a.Key)
		text := a.Value.String()
		if a.Value.Type() == attribute.INT64 {
			out[i].Value.Int = &text
		} else {
			out[i].Value.String = &text
		}
	}
	return out
}
